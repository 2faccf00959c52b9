// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Asked - collects its heap as often as it is asked to
 *
 *   java Asked
 *
 * Holds a table of linked objects, of which each collection finds some changed.
 * Each line of standard input is a number of collections, which a line "collected"
 * answers; at the end of the input the program checks the table, and ends.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

public final class Asked {
    private static final int CHAINS = 2000;
    private static final int LENGTH = 20;

    private record Link(Link next, int value) {
    }

    private static final Link[] TABLE = new Link[CHAINS];

    private static Link chain(int value) {
        Link link = null;
        for (int i = 0; i < LENGTH; i++) {
            link = new Link(link, value + i);
        }
        return link;
    }

    private static void check(int index) {
        int left = LENGTH;
        for (Link link = TABLE[index]; link != null; link = link.next()) {
            left--;
            if (link.value() != index + left) {
                throw new AssertionError("chain " + index + " is wrong");
            }
        }
        if (left != 0) {
            throw new AssertionError("chain " + index + " lacks " + left);
        }
    }

    public static void main(String[] args) throws IOException {
        for (int i = 0; i < CHAINS; i++) {
            TABLE[i] = chain(i);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        int changed = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            for (int left = Integer.parseInt(line); left > 0; left--) {
                for (int i = 0; i < CHAINS / 10; i++, changed++) {
                    TABLE[changed % CHAINS] = chain(changed % CHAINS);
                }
                System.gc();
            }
            System.out.println("collected");
        }
        for (int i = 0; i < CHAINS; i++) {
            check(i);
        }
    }
}
