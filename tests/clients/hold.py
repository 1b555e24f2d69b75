#!/usr/bin/env python3
"""hold.py LOCKSPACE RESOURCE MODE [try] -- hold one DLM lock through libdlm_lt.so.3 until stdin closes.

With `try` it does not wait for the lock: it says "refused" and exits 1 where it would have to.
A neutral second party for the client tests; ctypes only, C ABI of libdlm 3 on 64-bit Linux."""
import ctypes as C, errno, os, sys

class Lksb(C.Structure):
    _fields_ = [("status", C.c_int), ("lkid", C.c_uint32), ("flags", C.c_char), ("lvbptr", C.c_void_p)]

NOQUEUE = 1
lib = C.CDLL("libdlm_lt.so.3", use_errno=True)
for f in ("dlm_open_lockspace", "dlm_create_lockspace"):
    getattr(lib, f).restype = C.c_void_p
lib.dlm_open_lockspace.argtypes = [C.c_char_p]
lib.dlm_create_lockspace.argtypes = [C.c_char_p, C.c_uint]
lib.dlm_ls_lock_wait.argtypes = [C.c_void_p, C.c_uint32, C.POINTER(Lksb), C.c_uint32, C.c_char_p,
                                 C.c_uint, C.c_uint32, C.c_void_p, C.c_void_p, C.c_void_p]
lib.dlm_ls_unlock_wait.argtypes = [C.c_void_p, C.c_uint32, C.c_uint32, C.POINTER(Lksb)]
ls, res, mode = sys.argv[1].encode(), sys.argv[2].encode(), ["NL", "CR", "CW", "PR", "PW", "EX"].index(sys.argv[3])
flags = NOQUEUE if sys.argv[4:] == ["try"] else 0
h = lib.dlm_open_lockspace(ls) or lib.dlm_create_lockspace(ls, 0o600)
if not h:
    sys.exit("no lockspace: " + os.strerror(C.get_errno()))
k = Lksb()
rv = lib.dlm_ls_lock_wait(h, mode, C.byref(k), flags, res, len(res), 0, None, None, None)
if flags and rv == -1 and C.get_errno() == errno.EAGAIN:
    print("refused", flush=True)
    sys.exit(1)
if rv or k.status:
    sys.exit(f"no lock: rv {rv} errno {C.get_errno()} status {k.status}")
print("held", flush=True)
sys.stdin.read()
rv = lib.dlm_ls_unlock_wait(h, k.lkid, 0, C.byref(k))
print("freed", rv, hex(k.status), flush=True)
