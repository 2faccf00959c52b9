// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Held - what class loaders of Kinds define again and again, also as hidden
 * classes: something is kept by a static field, something by the object
 */

public final class Held {
    public static Object kept;
    public static final Object[] TABLE = new Object[3];
    public Object own;
}
