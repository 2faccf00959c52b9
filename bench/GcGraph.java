// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * GcGraph.java - the graph "gc dump" wrote, as a JVM's objects, to be marked
 *
 * Of the same number and sizes: nodes of 32 and of 40 bytes, arrays of eight,
 * byte arrays. They are allocated in the file's order; all but the root are
 * let go before collections are asked for, and the JVM's log says how long it
 * marked.
 */
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

final class GcGraph {
	static final class Node2 {
		long payload;
		Object a, b;
	}

	static final class Node4 {
		long payload;
		Object a, b, c, d;
	}

	private static Object[] objects;
	private static Object root;

	private static Object make(int type, int bytes, int refs) {
		return switch (type) {
		case 1 -> new Node2();
		case 2 -> new Node4();
		case 3 -> new Object[refs];
		default -> new byte[bytes - 16];
		};
	}

	private static void refer(Object from, int i, Object to) {
		if (from instanceof Node2 n) {
			if (i == 0)
				n.a = to;
			else
				n.b = to;
		} else if (from instanceof Node4 n) {
			switch (i) {
			case 0 -> n.a = to;
			case 1 -> n.b = to;
			case 2 -> n.c = to;
			default -> n.d = to;
			}
		} else {
			((Object[])from)[i] = to;
		}
	}

	private static void load(String file) throws IOException {
		try (FileChannel in = FileChannel.open(Path.of(file))) {
			ByteBuffer b = in.map(FileChannel.MapMode.READ_ONLY, 0, in.size());
			b.order(ByteOrder.LITTLE_ENDIAN);
			int n = b.getInt();
			objects = new Object[n];
			for (int i = 0; i < n; i++) {
				int type = b.getInt(), bytes = b.getInt(), refs = b.getInt();
				objects[i] = make(type, bytes, refs);
				b.position(b.position() + refs * 4);
			}
			b.position(4);
			for (int i = 0; i < n; i++) {
				b.position(b.position() + 8);
				int refs = b.getInt();
				for (int k = 0; k < refs; k++)
					refer(objects[i], k, objects[b.getInt()]);
			}
		}
		root = objects[0];
		objects = null;
	}

	public static void main(String[] args) throws IOException {
		load(args[0]);
		for (int i = Integer.parseInt(args[1]); i > 0; i--)
			System.gc();
		System.out.println(root.hashCode() != 0 ? "done" : "");
	}
}
