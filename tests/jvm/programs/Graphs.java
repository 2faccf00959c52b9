// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Graphs - PageRank and transitive closure, by the JGraphT library
 *
 *   java -cp jgrapht-core.jar Graphs NODES CLOSED SEED
 *
 * The ranks of a graph with few well-known nodes have to be those of a plain
 * loop over arrays; the closure of a graph of CLOSED nodes has to have the edges
 * that sets of bits have. Both change the graph and begin again, so that there
 * is garbage of all ages. Prints "ok" and a sum.
 */
import java.util.BitSet;
import java.util.SplittableRandom;
import org.jgrapht.Graph;
import org.jgrapht.alg.TransitiveClosure;
import org.jgrapht.alg.scoring.PageRank;
import org.jgrapht.graph.DefaultDirectedGraph;
import org.jgrapht.graph.DefaultEdge;
import org.jgrapht.graph.SimpleDirectedGraph;

public final class Graphs {
    private static final int EDGES = 8; // of a node
    private static final int TURNS = 12;
    private static final double DAMPING = 0.85;

    private static double[] ranks(int[][] to) {
        int nodes = to.length;
        double[] rank = new double[nodes];
        java.util.Arrays.fill(rank, 1.0 / nodes);
        for (int turn = 0; turn < TURNS; turn++) {
            double[] next = new double[nodes];
            double lost = 0;
            for (int i = 0; i < nodes; i++) {
                for (int j : to[i]) {
                    next[j] += DAMPING * rank[i] / to[i].length;
                }
                lost += to[i].length == 0 ? rank[i] : 0;
            }
            for (int i = 0; i < nodes; i++) {
                next[i] += (1 - DAMPING) / nodes + DAMPING * lost / nodes;
            }
            rank = next;
        }
        return rank;
    }

    private static long rank(SplittableRandom random, int nodes) {
        Graph<Integer, DefaultEdge> graph = new DefaultDirectedGraph<>(DefaultEdge.class);
        int[][] to = new int[nodes][];
        for (int i = 0; i < nodes; i++) {
            graph.addVertex(i);
        }
        for (int i = 0; i < nodes; i++) {
            java.util.TreeSet<Integer> chosen = new java.util.TreeSet<>();
            for (int k = random.nextInt(2 * EDGES); k > 0; k--) {
                double x = random.nextDouble();
                chosen.add((int) (nodes * x * x));
            }
            chosen.remove(i);
            to[i] = chosen.stream().mapToInt(Integer::intValue).toArray();
            for (int j : to[i]) {
                graph.addEdge(i, j);
            }
        }
        PageRank<Integer, DefaultEdge> found = new PageRank<>(graph, DAMPING, TURNS, 1e-300);
        double[] want = ranks(to);
        long sum = 0;
        for (int i = 0; i < nodes; i++) {
            double rank = found.getVertexScore(i);
            if (Math.abs(rank - want[i]) > 1e-9) {
                throw new AssertionError("node " + i + " has rank " + rank + " instead of " + want[i]);
            }
            sum = 31 * sum + Math.round(want[i] * 1e7);
        }
        return sum;
    }

    private static long close(SplittableRandom random, int nodes) {
        SimpleDirectedGraph<Integer, DefaultEdge> graph = new SimpleDirectedGraph<>(DefaultEdge.class);
        BitSet[] reaches = new BitSet[nodes];
        for (int i = 0; i < nodes; i++) {
            graph.addVertex(i);
            reaches[i] = new BitSet(nodes);
        }
        // Edges go to smaller numbers: what they reach is known.
        for (int i = 1; i < nodes; i++) {
            for (int k = 0; k < 2; k++) {
                int j = random.nextInt(i);
                graph.addEdge(i, j);
                reaches[i].set(j);
                reaches[i].or(reaches[j]);
            }
        }
        TransitiveClosure.INSTANCE.closeSimpleDirectedGraph(graph);
        long sum = 0;
        for (int i = 0; i < nodes; i++) {
            if (graph.outDegreeOf(i) != reaches[i].cardinality()) {
                throw new AssertionError("node " + i + " reaches " + graph.outDegreeOf(i));
            }
            for (DefaultEdge edge : graph.outgoingEdgesOf(i)) {
                if (!reaches[i].get(graph.getEdgeTarget(edge))) {
                    throw new AssertionError("node " + i + " does not reach " + edge);
                }
            }
            sum = 31 * sum + reaches[i].cardinality();
        }
        return sum;
    }

    public static void main(String[] args) {
        int nodes = Integer.parseInt(args[0]), closed = Integer.parseInt(args[1]);
        SplittableRandom random = new SplittableRandom(Long.parseLong(args[2]));
        long sum = rank(random, nodes);
        sum = 31 * sum + close(random, closed);
        sum = 31 * sum + rank(random, nodes / 2);
        System.out.println("ok " + Long.toHexString(sum));
    }
}
