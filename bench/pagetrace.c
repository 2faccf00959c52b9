// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pagetrace.c - a Valgrind tool: the pages a program's data accesses touch
 *
 * Lackey prints a line of text an access, which takes hours where this takes
 * minutes: here the page number is looked up among those recorded last
 * (pagelog.h), and only a page that is not there is written.
 *
 * Loads, stores and what system calls read and write count; instructions do
 * not. At --records=N the program is ended, as if it had succeeded.
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

#include "pagelog.h"

/* Not in the tool headers: moves a descriptor out of the program's way. */
extern Int VG_(safe_fd)(Int oldfd);

static struct pagelog pages;
static Int out = -1;
static const HChar *path;

static void pagelog_write(struct pagelog *log)
{
	UInt at = 0;

	while (out >= 0 && at < log->used) {
		Int n = VG_(write)(out, log->buffer + at, log->used - at);

		if (n <= 0) {
			VG_(umsg)("pagetrace: cannot write %s\n", path);
			VG_(exit)(1);
		}
		at += n;
	}
}

static void pagelog_full(struct pagelog *log)
{
	VG_(umsg)("pagetrace: ended after %lld records\n", log->records);
	VG_(exit)(0);
}

static VG_REGPARM(1) void pt_load(Addr a)
{
	pagelog_put(&pages, a >> 12, False);
}

static VG_REGPARM(1) void pt_store(Addr a)
{
	pagelog_put(&pages, a >> 12, True);
}

static void pt_range(Addr a, SizeT size, Bool write)
{
	UWord page;

	if (size)
		for (page = a >> 12; page <= (a + size - 1) >> 12; page++)
			pagelog_put(&pages, page, write);
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
	} else if (VG_BINT_CLO(arg, "--records", pages.records_max, 1,
			       1ll << 40)) {
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
	pagelog_flush(&pages);
	VG_(umsg)("pagetrace: %lld records\n", pages.records);
}

static void pt_pre_init(void)
{
	pages.records_max = 1ll << 40;
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
