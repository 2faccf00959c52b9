// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Search - a full-text index in memory, by the Lucene library
 *
 *   java -cp lucene-core.jar Search DOCUMENTS ROUNDS SEED
 *
 * Documents of words of which few are frequent are added, and in each round a
 * part of them is replaced. Searches for a word, two words, and both in a phrase
 * must find as many as the program counts itself. Prints "ok" and a sum.
 */
import java.io.IOException;
import java.util.SplittableRandom;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.ByteBuffersDirectory;

public final class Search {
    private static final int WORDS = 20_000;
    private static final int LENGTH = 80;
    private static final int QUERIES = 60;

    private final SplittableRandom random;
    private final short[][] documents;
    private final IndexWriter writer;

    private Search(int documents, long seed, IndexWriter writer) {
        this.documents = new short[documents][];
        this.writer = writer;
        random = new SplittableRandom(seed);
    }

    private short word() {
        double x = random.nextDouble();
        return (short) (WORDS * x * x * x * x);
    }

    private static String name(int word) {
        return "w" + Integer.toString(word, 36);
    }

    private void write(int number) throws IOException {
        short[] words = new short[LENGTH];
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < LENGTH; i++) {
            words[i] = word();
            text.append(name(words[i])).append(' ');
        }
        documents[number] = words;
        Document document = new Document();
        document.add(new StringField("number", Integer.toString(number), Field.Store.YES));
        document.add(new TextField("text", text.toString(), Field.Store.YES));
        writer.updateDocument(new Term("number", Integer.toString(number)), document);
    }

    private int count(int first, int second, boolean phrase) {
        int found = 0;
        for (short[] words : documents) {
            boolean has = false, hasBoth = second < 0, inPhrase = false;
            for (int i = 0; i < LENGTH; i++) {
                has |= words[i] == first;
                hasBoth |= words[i] == second;
                inPhrase |= i > 0 && words[i - 1] == first && words[i] == second;
            }
            found += (phrase ? inPhrase : has && hasBoth) ? 1 : 0;
        }
        return found;
    }

    private long ask(IndexSearcher searcher) throws IOException {
        int first = word(), second = word(), kind = random.nextInt(3);
        Term a = new Term("text", name(first)), b = new Term("text", name(second));
        Query query = switch (kind) {
            case 0 -> new TermQuery(a);
            case 1 -> new BooleanQuery.Builder().add(new TermQuery(a), BooleanClause.Occur.MUST)
                    .add(new TermQuery(b), BooleanClause.Occur.MUST).build();
            default -> new PhraseQuery("text", name(first), name(second));
        };
        int found = searcher.count(query), want = count(first, kind == 0 ? -1 : second, kind == 2);
        if (found != want) {
            throw new AssertionError(query + " finds " + found + " of " + want);
        }
        return found;
    }

    public static void main(String[] args) throws IOException {
        int count = Integer.parseInt(args[0]), rounds = Integer.parseInt(args[1]);
        long sum = 0;
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer());
        config.setMergeScheduler(new SerialMergeScheduler());
        config.setRAMBufferSizeMB(8);
        try (ByteBuffersDirectory directory = new ByteBuffersDirectory();
                IndexWriter writer = new IndexWriter(directory, config)) {
            Search search = new Search(count, Long.parseLong(args[2]), writer);
            for (int i = 0; i < count; i++) {
                search.write(i);
            }
            for (int round = 0; round < rounds; round++) {
                for (int i = 0; i < count / 10; i++) {
                    search.write(search.random.nextInt(count));
                }
                writer.commit();
                try (DirectoryReader reader = DirectoryReader.open(directory)) {
                    IndexSearcher searcher = new IndexSearcher(reader);
                    searcher.setQueryCache(null);
                    for (int i = 0; i < QUERIES; i++) {
                        sum = 31 * sum + search.ask(searcher);
                    }
                }
            }
        }
        System.out.println("ok " + Long.toHexString(sum));
    }
}
