// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Plain - starts a process, and prints whether our libraries are in its own
 */

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

public final class Plain {
    public static void main(String[] args) throws IOException, InterruptedException {
        if (new ProcessBuilder("true").start().waitFor() != 0) {
            throw new AssertionError("a process that does nothing has failed");
        }
        try (var lines = Files.lines(Path.of("/proc/self/maps"))) {
            long ours = lines.filter(x -> x.contains("libvgc") || x.contains("libdcm")).count();
            System.out.println(ours == 0 ? "plain" : "ours");
        }
    }
}
