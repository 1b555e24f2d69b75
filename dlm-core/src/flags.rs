//! Flag words of the interface (semantics.md section 2).

macro_rules! flag_word {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$fdoc:meta])* $flag:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$fdoc])* pub const $flag: Self = Self($value);)*

            /// Whether all bits of `other` are set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set.
            pub const fn any(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Both words together.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// This word without the bits of `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }
    };
}

flag_word! {
    /// Flags of lock, convert and unlock calls (2.1). Unknown bits are kept and ignored.
    LockFlags: u32 {
        /// Never wait: the completion says EAGAIN instead.
        NOQUEUE = 0x1;
        /// Unlock only: cancel a pending request or conversion.
        CANCEL = 0x2;
        /// Operate on an existing lock.
        CONVERT = 0x4;
        /// Take part in value-block transfer.
        VALBLK = 0x8;
        /// Conversion: no grant in place past other queued conversions.
        QUECVT = 0x10;
        /// Conversion, unlock: invalidate the value block where it would be written.
        IVVALBLK = 0x20;
        /// Conversion: resolve a conversion deadlock by demotion to NL.
        CONVDEADLK = 0x40;
        /// The lock becomes an orphan when its handle ends.
        PERSISTENT = 0x80;
        /// Conversion: queue even into a conversion deadlock.
        NODLCKWT = 0x100;
        /// Accepted without effect.
        NODLCKBLK = 0x200;
        /// New NL request: granted at once, whatever waits.
        EXPEDITE = 0x400;
        /// With NOQUEUE: a failed attempt still tells the holders.
        NOQUEUEBAST = 0x800;
        /// Queue at the head.
        HEADQUE = 0x1000;
        /// Ignore queue order; compatibility alone decides.
        NOORDER = 0x2000;
        /// Adopt an orphan instead of asking for a new lock.
        ORPHAN = 0x4000;
        /// Take PR where the requested mode cannot be granted.
        ALTPR = 0x8000;
        /// Take CW where the requested mode cannot be granted.
        ALTCW = 0x1_0000;
        /// Unlock in every state.
        FORCEUNLOCK = 0x2_0000;
        /// End the request when its time limit is over (D12).
        TIMEOUT = 0x4_0000;
    }
}

flag_word! {
    /// Flags reported in a status block (2.2).
    SbFlags: u8 {
        /// The lock was demoted to NL to resolve a conversion deadlock.
        DEMOTED = 0x1;
        /// The value block may be out of date.
        VALNOTVALID = 0x2;
        /// The alternative mode was granted.
        ALTMODE = 0x4;
    }
}

flag_word! {
    /// Flags of lockspace creation (2.4).
    SpaceFlags: u32 {
        /// Masters by hash instead of by first use.
        NODIR = 0x1;
        /// Accepted and dropped.
        TIMEWARN = 0x2;
        /// Marks a kernel lockspace; kept for display.
        FS = 0x4;
        /// Fail with EEXIST if the lockspace exists on this node.
        NEWEXCL = 0x8;
        /// Kernel lockspaces only: refused.
        SOFTIRQ = 0x10;
    }
}
