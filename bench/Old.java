// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Old.java - a large old generation that hardly changes, collected when asked
 *
 *   java Old MIB [PERCENT]
 *
 * A graph of so many MiB: each node refers to two near it, and one of 16 to one
 * anywhere. Every other node of a quarter of it is let go, so that there are regions
 * worth a collection. It says "changed"; each line of standard input asks for a
 * collection, which "collected" answers; then a thousand references are changed, so
 * many percent of the nodes are replaced, and it says so again. At the end of the input
 * the program walks through the graph, and prints "ok" and a sum.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.SplittableRandom;

final class Old {
	private static final int NODE_BYTES = 32; // with a header and three references
	private static final int CHANGES = 1000;
	private static final int NEAR = 2000;
	private static final int FAR = 16; // of so many nodes one refers to any other

	private static final class Node {
		long number;
		Node a, b, c;
	}

	private static Node[] nodes;

	private static Node near(SplittableRandom random, int i) {
		return nodes[Math.floorMod(i + random.nextInt(2 * NEAR) - NEAR, nodes.length)];
	}

	private static void refer(SplittableRandom random, int i) {
		Node from = nodes[i];
		if (from == null)
			return;
		from.a = near(random, i);
		from.b = near(random, i);
		from.c = i % FAR == 0 ? nodes[random.nextInt(nodes.length)] : null;
	}

	// The nodes from here on: what was there is garbage, but for what is referred to from afar.
	private static void replace(SplittableRandom random, int first, int count) {
		for (int i = first; i < first + count; i++) {
			Node old = nodes[i % nodes.length];
			if (old == null)
				continue;
			old.a = old.b = old.c = null;
			nodes[i % nodes.length] = new Node();
			nodes[i % nodes.length].number = i % nodes.length;
		}
		for (int i = first - NEAR; i < first + count + NEAR; i++)
			refer(random, Math.floorMod(i, nodes.length));
	}

	private static long walk() {
		long sum = 0;
		for (int i = 0; i < nodes.length; i++) {
			Node node = nodes[i];
			if (node == null)
				continue;
			if (node.number != i)
				throw new AssertionError("node " + i + " is " + node.number);
			for (Node to : new Node[] { node.a, node.b })
				sum += to == null ? 0 : to.number;
		}
		return sum;
	}

	public static void main(String[] args) throws IOException {
		SplittableRandom random = new SplittableRandom(7);

		nodes = new Node[(Integer.parseInt(args[0]) << 20) / (NODE_BYTES + 4)];
		for (int i = 0; i < nodes.length; i++) {
			nodes[i] = new Node();
			nodes[i].number = i;
		}
		for (int i = 0; i < nodes.length / 4; i += 2)
			nodes[i] = null;
		for (int i = 0; i < nodes.length; i++)
			refer(random, i);
		System.out.println("changed");
		int replaced = args.length < 2 ? 0 : nodes.length / 100 * Integer.parseInt(args[1]);
		int next = 0;
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		while (in.readLine() != null) {
			System.gc();
			System.out.println("collected");
			for (int i = 0; i < CHANGES; i++)
				refer(random, random.nextInt(nodes.length));
			if (replaced > 0)
				replace(random, next, replaced);
			next = (next + replaced) % nodes.length;
			System.out.println("changed");
		}
		System.out.println("ok " + walk());
	}
}
