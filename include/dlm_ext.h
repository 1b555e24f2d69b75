/*
 * dlm_ext.h - what libdlm and libdlm_lt offer beyond the interface of <libdlm.h>: see dlmx(3).
 *
 * All names start with dlmx_ (DLMX_). A program that uses them runs with these libraries only. Each
 * call returns 0, or -1 with errno.
 */
#ifndef DLM_EXT_H
#define DLM_EXT_H

#include <stdint.h>
#include <libdlm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a handle was lost. More numbers may be added; each of them but 0 is a loss. */
enum dlmx_loss_reason {
	DLMX_LOSS_NONE = 0,        /* the handle works */
	DLMX_LOSS_DAEMON_GONE = 1, /* dlmd ended or was killed */
	DLMX_LOSS_SHUTDOWN = 2,    /* dlmd was told to stop */
	DLMX_LOSS_REMOVED = 3,     /* the lockspace was removed by force */
	DLMX_LOSS_PROTOCOL = 4,    /* this process broke the rules of the shared pages */
	DLMX_LOSS_NODE_LOST = 5,   /* this node lost the cluster */
	DLMX_LOSS_LEASE_ENDED = 6  /* the cluster's permission to hold locks ran out */
};
/*
 * After NODE_LOST and LEASE_ENDED other nodes wait for this process to close the handle, or to end;
 * where there is a lease, it is killed if it does neither in time.
 */

/*
 * The token of the lock's last grant. For one resource name tokens only grow, in the whole cluster:
 * a store that remembers the highest token it has seen can refuse a holder that was overtaken.
 * ENOENT: no such lock on this handle, or it was never granted.
 */
extern int dlmx_token(dlm_lshandle_t ls, uint32_t lkid, uint64_t *token);

/* What this process knows of a handle and of one of its locks. */
struct dlmx_status {
	uint32_t loss;     /* enum dlmx_loss_reason; DLMX_LOSS_NONE: the handle works */
	uint32_t nodeid;   /* this node */
	int32_t mode;      /* granted mode, LKM_; -1: none */
	int32_t status;    /* last completion's sb_status; EINPROG: none yet */
	uint32_t flags;    /* last completion's sb_flags */
	uint32_t pending;  /* operations whose completion has not come yet */
	uint64_t token;    /* of the last grant; 0: none */
	uint64_t events;   /* events received and not yet dispatched, of all locks of the handle */
	uint64_t spare[3]; /* 0 */
};

/*
 * Fills *status. With lkid 0 only loss, nodeid and events are told. Never waits for the daemon or
 * for another thread's call: it answers from memory, also while other threads are blocked in lock
 * calls. ENOENT: no such lock on this handle; loss, nodeid and events are filled in all the same.
 */
extern int dlmx_status(dlm_lshandle_t ls, uint32_t lkid, struct dlmx_status *status);

/*
 * Has fn(arg, reason) called once when the handle is lost: inside dlm_dispatch, on the helper
 * thread, or (libdlm_lt) inside a waiting call, after the callbacks of the locks with an operation
 * in progress. If the handle is lost already it is called by the next of these. NULL takes it back.
 */
extern int dlmx_set_loss_callback(dlm_lshandle_t ls,
				  void (*fn)(void *arg, enum dlmx_loss_reason reason), void *arg);

/* No time limit. */
#define DLMX_NO_TIMEOUT UINT32_MAX

/*
 * dlm_ls_lock_wait with a time limit in milliseconds (steps of 10, at least 10). Over: -1 ETIMEDOUT
 * in both libraries, sb_status ETIMEDOUT, and nothing is left behind: a new request is gone, a
 * conversion keeps its old mode. A lock that comes at the last moment counts as granted.
 */
extern int dlmx_ls_lock_wait_timeout(dlm_lshandle_t ls, uint32_t mode, struct dlm_lksb *lksb,
				     uint32_t flags, const void *name, unsigned int namelen,
				     uint32_t parent, void *bastarg,
				     void (*bastaddr)(void *bastarg), void *range,
				     uint32_t timeout_ms);

/*
 * Text that listings show beside the locks of this handle, at most 64 bytes, for instance the
 * program's job. EINVAL: longer.
 */
extern int dlmx_set_label(dlm_lshandle_t ls, const char *text);

#ifdef __cplusplus
}
#endif

#endif /* DLM_EXT_H */
