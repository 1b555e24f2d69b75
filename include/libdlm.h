/*
 * libdlm.h - the C interface of the distributed lock manager.
 *
 * Source compatible with the interface that programs for the Linux DLM were written against: same
 * names, numbers, prototypes and guards. What the calls do is told by libdlm(3), dlm_lock(3),
 * dlm_unlock(3) and dlm_create_lockspace(3). Our additions are in <dlm_ext.h>.
 *
 * Link with -ldlm (needs threads; a helper thread can run the callbacks) or with -ldlm_lt (never
 * starts a thread). The two differ in what the _wait calls return: see libdlm(3).
 */
#ifndef __LIBDLM_H
#define __LIBDLM_H

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * BUILDING_LIBDLM leaves out what <linux/dlm.h> and <linux/dlmconstants.h> define as well, for
 * sources that include both.
 */
#ifndef BUILDING_LIBDLM

/* Lengths in bytes: value block, lockspace name, resource name. */
#define DLM_LVB_LEN 32
#define DLM_LOCKSPACE_LEN 64
#define DLM_RESNAME_MAXLEN 64

/* Bits of sb_flags. */
#define DLM_SBF_DEMOTED 0x01     /* demoted to NL to resolve a conversion deadlock */
#define DLM_SBF_VALNOTVALID 0x02 /* the value block may be out of date */
#define DLM_SBF_ALTMODE 0x04     /* the alternative mode was granted */

/* Bits for dlm_new_lockspace. */
#define DLM_LSFL_TIMEWARN 0x00000002 /* accepted without effect */
#define DLM_LSFL_FS 0x00000004       /* kept for display */
#define DLM_LSFL_NEWEXCL 0x00000008  /* fail with EEXIST if the lockspace exists here */

/* Status block of a lock. The library keeps its address until the lock is gone. */
struct dlm_lksb {
	int sb_status;      /* EINPROG while pending, then 0 or a positive number */
	uint32_t sb_lkid;   /* lock id; names the lock in a conversion */
	char sb_flags;      /* DLM_SBF_ bits */
	char *sb_lvbptr;    /* DLM_LVB_LEN bytes of the caller, or NULL */
};

#endif /* BUILDING_LIBDLM */

/* Lock modes, weakest first. */
#define LKM_NLMODE 0 /* null: interest only */
#define LKM_CRMODE 1 /* concurrent read */
#define LKM_CWMODE 2 /* concurrent write */
#define LKM_PRMODE 3 /* protected read: shared */
#define LKM_PWMODE 4 /* protected write: one writer among concurrent readers */
#define LKM_EXMODE 5 /* exclusive */

/* Flags of lock, conversion and unlock requests. */
#define LKF_NOQUEUE 0x00000001     /* do not wait: EAGAIN instead */
#define LKF_CANCEL 0x00000002      /* unlock calls: end a pending request or conversion */
#define LKF_CONVERT 0x00000004     /* change the mode of the lock in sb_lkid */
#define LKF_VALBLK 0x00000008      /* read or write the value block */
#define LKF_QUECVT 0x00000010      /* conversion: queue behind other conversions */
#define LKF_IVVALBLK 0x00000020    /* mark the value block invalid */
#define LKF_CONVDEADLK 0x00000040  /* conversion: resolve a deadlock by demotion to NL */
#define LKF_PERSISTENT 0x00000080  /* the lock outlives its handle */
#define LKF_NODLCKWT 0x00000100    /* conversion: queue even into a deadlock */
#define LKF_NODLCKBLK 0x00000200   /* accepted without effect */
#define LKF_EXPEDITE 0x00000400    /* new NL request: grant whatever waits */
#define LKF_NOQUEUEBAST 0x00000800 /* with NOQUEUE: tell the holders all the same */
#define LKF_HEADQUE 0x00001000     /* queue at the head */
#define LKF_NOORDER 0x00002000     /* ignore queue order */
#define LKF_ORPHAN 0x00004000      /* adopt an orphan */
#define LKF_ALTPR 0x00008000       /* PR will do */
#define LKF_ALTCW 0x00010000       /* CW will do */
#define LKF_FORCEUNLOCK 0x00020000 /* unlock in every state */
#define LKF_TIMEOUT 0x00040000     /* end the request after the time given to dlm_ls_lockx */
#define LKF_WAIT 0x80000000        /* handled by the library: return when the request ended */

/* Statuses beyond the errno range. */
#define ECANCEL 0x10001 /* cancelled */
#define EUNLOCK 0x10002 /* unlocked */
#define EINPROG 0x10003 /* not ended yet */

/* A lockspace handle. It belongs to the process that opened it. */
typedef void *dlm_lshandle_t;

/* Lockspaces: dlm_create_lockspace(3). */
extern dlm_lshandle_t dlm_create_lockspace(const char *name, mode_t mode);
extern dlm_lshandle_t dlm_new_lockspace(const char *name, mode_t mode, uint32_t flags);
extern dlm_lshandle_t dlm_open_lockspace(const char *name);
extern int dlm_close_lockspace(dlm_lshandle_t ls);
extern int dlm_release_lockspace(const char *name, dlm_lshandle_t ls, int force);

/* Locks in a lockspace: dlm_lock(3), dlm_unlock(3). */
extern int dlm_ls_lock(dlm_lshandle_t ls, uint32_t mode, struct dlm_lksb *lksb, uint32_t flags,
		       const void *name, unsigned int namelen, uint32_t parent,
		       void (*astaddr)(void *astarg), void *astarg,
		       void (*bastaddr)(void *astarg), void *range);
extern int dlm_ls_lock_wait(dlm_lshandle_t ls, uint32_t mode, struct dlm_lksb *lksb,
			    uint32_t flags, const void *name, unsigned int namelen,
			    uint32_t parent, void *bastarg, void (*bastaddr)(void *bastarg),
			    void *range);
extern int dlm_ls_lockx(dlm_lshandle_t ls, uint32_t mode, struct dlm_lksb *lksb, uint32_t flags,
			const void *name, unsigned int namelen, uint32_t parent,
			void (*astaddr)(void *astarg), void *astarg,
			void (*bastaddr)(void *astarg), uint64_t *xid, uint64_t *timeout);
extern int dlm_ls_unlock(dlm_lshandle_t ls, uint32_t lkid, uint32_t flags, struct dlm_lksb *lksb,
			 void *astarg);
extern int dlm_ls_unlock_wait(dlm_lshandle_t ls, uint32_t lkid, uint32_t flags,
			      struct dlm_lksb *lksb);
extern int dlm_ls_deadlock_cancel(dlm_lshandle_t ls, uint32_t lkid, uint32_t flags);
extern int dlm_ls_purge(dlm_lshandle_t ls, int nodeid, int pid);

/* The same in the lockspace "default", which the first call opens or creates. */
extern int dlm_lock(uint32_t mode, struct dlm_lksb *lksb, uint32_t flags, const void *name,
		    unsigned int namelen, uint32_t parent, void (*astaddr)(void *astarg),
		    void *astarg, void (*bastaddr)(void *astarg), void *range);
extern int dlm_lock_wait(uint32_t mode, struct dlm_lksb *lksb, uint32_t flags, const void *name,
			 unsigned int namelen, uint32_t parent, void *bastarg,
			 void (*bastaddr)(void *bastarg), void *range);
extern int dlm_unlock(uint32_t lkid, uint32_t flags, struct dlm_lksb *lksb, void *astarg);
extern int dlm_unlock_wait(uint32_t lkid, uint32_t flags, struct dlm_lksb *lksb);

/* Callbacks run inside dlm_dispatch; the descriptor is readable when it would find something. */
extern int dlm_get_fd(void);
extern int dlm_ls_get_fd(dlm_lshandle_t ls);
extern int dlm_dispatch(int fd);

/* Versions: of the lock service (-1 if none answers), and of this library. */
extern int dlm_kernel_version(uint32_t *maj, uint32_t *min, uint32_t *patch);
extern void dlm_library_version(uint32_t *maj, uint32_t *min, uint32_t *patch);

/* Only in libdlm, for programs compiled with -pthread. */
#ifdef _REENTRANT
extern int dlm_pthread_init(void);
extern int dlm_ls_pthread_init(dlm_lshandle_t ls);
extern int dlm_pthread_cleanup(void);
extern int lock_resource(const char *resource, int mode, int flags, int *lockid);
extern int unlock_resource(int lockid);
#endif

#ifdef __cplusplus
}
#endif

#endif /* __LIBDLM_H */
