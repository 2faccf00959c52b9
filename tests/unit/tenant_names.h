/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tenant_names.h - what is a tenant's name, and what is not
 *
 * readers_test.c and tests/dcmctl/test_dcmctl_values.py read the same list, one name a
 * line, of printable ASCII: Python takes a line's string for one of its own.
 */
GOOD("lab")
GOOD("mytenant")
GOOD("web-1.example_2")
GOOD("A")
GOOD("0")
GOOD("-x")
GOOD(".hidden")
GOOD("0123456789012345678901234567890123456789012345678901234567890123")
BAD("")
BAD("01234567890123456789012345678901234567890123456789012345678901234")
BAD("a b")
BAD(" a")
BAD("a ")
BAD("a\tb")
BAD("a:b")
BAD("a;b")
BAD("#a")
BAD("a/b")
BAD("a@b")
BAD("a+b")
BAD("a=b")
BAD("a,b")
BAD("a]b")
BAD("a*")
BAD("caf\xc3\xa9")
BAD("a\x7f")
BAD("a\x01")
