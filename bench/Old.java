// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Old.java - a large old generation that hardly changes, collected when asked
 *
 *   java Old MIB
 *
 * A graph of so many MiB: each node refers to three at random. Every other node of
 * a quarter of it is let go, so that there are regions worth a collection. Each line
 * of standard input is a number of collections, before each of which a thousand
 * references are changed; a line "collected" answers. At the end of the input the
 * program walks through the graph, and prints "ok" and how much it has reached.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.SplittableRandom;

final class Old {
	private static final int NODE_BYTES = 32; // with a header and three references
	private static final int CHANGES = 1000;

	private static final class Node {
		long number;
		Node a, b, c;
	}

	private static Node[] nodes;

	private static void refer(SplittableRandom random, Node from) {
		from.a = nodes[random.nextInt(nodes.length)];
		from.b = nodes[random.nextInt(nodes.length)];
		from.c = nodes[random.nextInt(nodes.length)];
	}

	private static long walk() {
		long sum = 0;
		for (int i = 0; i < nodes.length; i++) {
			Node node = nodes[i];
			if (node == null)
				continue;
			if (node.number != i)
				throw new AssertionError("node " + i + " is " + node.number);
			for (Node to : new Node[] { node.a, node.b, node.c })
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
		for (Node node : nodes) {
			if (node != null)
				refer(random, node);
		}
		System.out.println("collected");
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			for (int left = Integer.parseInt(line); left > 0; left--) {
				for (int i = 0; i < CHANGES; i++) {
					Node node = nodes[random.nextInt(nodes.length)];
					if (node != null)
						refer(random, node);
				}
				System.gc();
			}
			System.out.println("collected");
		}
		System.out.println("ok " + walk());
	}
}
