// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pagetrace.c - a Valgrind tool: the pages a program's data accesses touch
 *
 * Lackey prints a line of text an access, which takes hours where this takes
 * seconds: here the page number is compared with the last few in the
 * instrumented program, and only a change is written, as a varint delta.
 *
 * Output (trace.h reads it): per record one LEB128 number,
 *   zigzag(page - previous page) << 1 | write
 * A page among the RECENT last ones is left out (no replacement policy of
 * hundreds of pages can tell); that short memory is emptied every FORGET
 * records, so that a page used all the time shows up again and again.
 *
 * Loads, stores and what system calls read and write count; instructions do
 * not. The tool stops recording at --records=N and lets the program go on.
 */
#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"

#define RECENT 16
#define FORGET 256
#define BUFFER (1 << 20)

/* Not in the tool headers: moves a descriptor out of the program's way. */
extern Int VG_(safe_fd)(Int oldfd);

static struct {
	UWord page;
	Bool written;
} recent[RECENT];

static UChar buffer[BUFFER];
static UInt used;
static Int out = -1;
static UWord last;
static Long records, records_max = 1ll << 40;
static const HChar *path;

static void pt_flush(void)
{
	UInt at = 0;

	while (out >= 0 && at < used) {
		Int n = VG_(write)(out, buffer + at, used - at);

		if (n <= 0) {
			VG_(umsg)("pagetrace: cannot write %s\n", path);
			VG_(exit)(1);
		}
		at += n;
	}
	used = 0;
}

static void pt_record(UWord page, Bool write)
{
	Word delta = (Word)(page - last);
	ULong v = ((ULong)delta << 1 ^ (ULong)(delta >> 63)) << 1 | write;

	if (records >= records_max)
		return;
	if (used > BUFFER - 16)
		pt_flush();
	do {
		buffer[used++] = (UChar)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	last = page;
	if (++records % FORGET == 0)
		VG_(memset)(recent, 0, sizeof(recent));
}

static void pt_page(UWord page, Bool write)
{
	Int i;

	for (i = 0; i < RECENT; i++) {
		if (recent[i].page != page)
			continue;
		if (write && !recent[i].written)
			break;
		return;
	}
	if (i == RECENT)
		i = RECENT - 1;
	for (; i > 0; i--)
		recent[i] = recent[i - 1];
	recent[0].page = page;
	recent[0].written = write;
	pt_record(page, write);
}

static VG_REGPARM(1) void pt_load(Addr a)
{
	UWord page = a >> 12;

	if (recent[0].page != page)
		pt_page(page, False);
}

static VG_REGPARM(1) void pt_store(Addr a)
{
	UWord page = a >> 12;

	if (recent[0].page != page || !recent[0].written)
		pt_page(page, True);
}

static void pt_range(Addr a, SizeT size, Bool write)
{
	UWord page;

	if (size)
		for (page = a >> 12; page <= (a + size - 1) >> 12; page++)
			pt_page(page, write);
}

static void pt_syscall_read(CorePart part, ThreadId tid, const HChar *s, Addr a,
			    SizeT size)
{
	(void)tid;
	(void)s;
	if (part == Vg_CoreSysCall)
		pt_range(a, size, False);
}

static void pt_syscall_write(CorePart part, ThreadId tid, Addr a, SizeT size)
{
	(void)tid;
	if (part == Vg_CoreSysCall)
		pt_range(a, size, True);
}

static void pt_call(IRSB *sb, IRExpr *addr, Bool write, IRExpr *guard)
{
	IRDirty *d = unsafeIRDirty_0_N(1, write ? "pt_store" : "pt_load",
				       VG_(fnptr_to_fnentry)(
					       write ? (void *)pt_store :
								     (void *)pt_load),
				       mkIRExprVec_1(addr));

	if (guard)
		d->guard = guard;
	addStmtToIRSB(sb, IRStmt_Dirty(d));
}

static IRSB *pt_instrument(VgCallbackClosure *closure, IRSB *in,
			   const VexGuestLayout *layout,
			   const VexGuestExtents *vge, const VexArchInfo *host,
			   IRType guest_word, IRType host_word)
{
	IRSB *out_sb = deepCopyIRSBExceptStmts(in);
	Int i;

	(void)closure;
	(void)layout;
	(void)vge;
	(void)host;
	if (guest_word != host_word)
		VG_(tool_panic)("pagetrace: guest and host words differ");
	for (i = 0; i < in->stmts_used; i++) {
		IRStmt *st = in->stmts[i];

		switch (st->tag) {
		case Ist_WrTmp:
			if (st->Ist.WrTmp.data->tag == Iex_Load)
				pt_call(out_sb,
					st->Ist.WrTmp.data->Iex.Load.addr,
					False, NULL);
			break;
		case Ist_Store:
			pt_call(out_sb, st->Ist.Store.addr, True, NULL);
			break;
		case Ist_StoreG:
			pt_call(out_sb, st->Ist.StoreG.details->addr, True,
				st->Ist.StoreG.details->guard);
			break;
		case Ist_LoadG:
			pt_call(out_sb, st->Ist.LoadG.details->addr, False,
				st->Ist.LoadG.details->guard);
			break;
		case Ist_CAS:
			pt_call(out_sb, st->Ist.CAS.details->addr, True, NULL);
			break;
		case Ist_LLSC:
			pt_call(out_sb, st->Ist.LLSC.addr, True, NULL);
			break;
		case Ist_Dirty:
			if (st->Ist.Dirty.details->mFx != Ifx_None)
				pt_call(out_sb, st->Ist.Dirty.details->mAddr,
					st->Ist.Dirty.details->mFx != Ifx_Read,
					NULL);
			break;
		default:
			break;
		}
		addStmtToIRSB(out_sb, st);
	}
	return out_sb;
}

static Bool pt_option(const HChar *arg)
{
	if (VG_STR_CLO(arg, "--out", path)) {
	} else if (VG_BINT_CLO(arg, "--records", records_max, 1, 1ll << 40)) {
	} else {
		return False;
	}
	return True;
}

static void pt_usage(void)
{
	VG_(printf)
	("    --out=FILE       where the trace goes\n"
		    "    --records=N      stop recording after N records\n");
}

static void pt_debug_usage(void)
{
	VG_(printf)("    (none)\n");
}

static void pt_post_init(void)
{
	SysRes r;

	if (!path) {
		VG_(umsg)("pagetrace: --out=FILE is needed\n");
		VG_(exit)(1);
	}
	r = VG_(open)(path, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, 0600);
	if (sr_isError(r)) {
		VG_(umsg)("pagetrace: cannot create %s\n", path);
		VG_(exit)(1);
	}
	out = VG_(safe_fd)((Int)sr_Res(r));
}

static void pt_fini(Int status)
{
	(void)status;
	pt_flush();
	VG_(umsg)("pagetrace: %lld records\n", records);
}

static void pt_pre_init(void)
{
	VG_(details_name)("pagetrace");
	VG_(details_version)(NULL);
	VG_(details_description)("the pages a program touches");
	VG_(details_copyright_author)("The kvm-dcm authors");
	VG_(details_bug_reports_to)("the kvm-dcm project");
	VG_(basic_tool_funcs)(pt_post_init, pt_instrument, pt_fini);
	VG_(needs_command_line_options)(pt_option, pt_usage, pt_debug_usage);
	VG_(track_pre_mem_read)(pt_syscall_read);
	VG_(track_post_mem_write)(pt_syscall_write);
}

VG_DETERMINE_INTERFACE_VERSION(pt_pre_init)
