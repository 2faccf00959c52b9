// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drop - fills the heap, drops all of it, and collects it
 *
 *   java Drop MIB
 *
 * Prints "full" and, once a full collection is over, "dropped"; waits for a
 * line of input after each.
 */

import java.io.IOException;

public final class Drop {
    private static final int SMALL = 1000;

    private static byte[][] fill(int mib) {
        byte[][] all = new byte[(int) ((long) mib * (1 << 20) / SMALL)][];
        for (int i = 0; i < all.length; i++) {
            all[i] = new byte[SMALL - 16];
            all[i][i % all[i].length] = (byte) i;
        }
        return all;
    }

    private static void pause(String word) throws IOException {
        System.out.println(word);
        System.in.read();
    }

    public static void main(String[] args) throws IOException {
        byte[][] all = fill(Integer.parseInt(args[0]));
        pause("full");
        for (int i = 0; i < all.length; i++) {
            if (all[i][i % all[i].length] != (byte) i) {
                throw new AssertionError("array " + i + " is wrong");
            }
        }
        all = null;
        System.gc();
        pause("dropped");
    }
}
