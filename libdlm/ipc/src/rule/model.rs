//! The bell and room rules under a model checker: every interleaving and every value that the
//! memory model allows a load to see. A lost wake-up shows as a deadlock, an unordered entry as a
//! wrong value.

use std::sync::atomic::Ordering::{self, AcqRel, Relaxed, SeqCst};

use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::Words;
use crate::word::Word;

/// The checker's word; `FENCED` false leaves out what the rule stands on.
struct Checked<const FENCED: bool>(AtomicU32);

impl<const FENCED: bool> Word for Checked<FENCED> {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    fn full_fence() {
        fence(if FENCED { SeqCst } else { AcqRel });
    }
}

/// An eventfd with somebody who waits for it.
struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { rung: Mutex::new(false), wake: Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.wake.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.wake.wait(rung).unwrap();
        }
        *rung = false;
    }
}

struct Model<const FENCED: bool> {
    words: [Checked<FENCED>; 4],
    slots: Vec<AtomicU32>,
    bell: Bell,
    room_bell: Bell,
}

impl<const FENCED: bool> Model<FENCED> {
    fn new(capacity: usize) -> Self {
        Self {
            words: [(); 4].map(|()| Checked(AtomicU32::new(0))),
            slots: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
            bell: Bell::new(),
            room_bell: Bell::new(),
        }
    }

    fn words(&self) -> Words<'_, Checked<FENCED>> {
        let [head, tail, sleeping, room] = &self.words;
        Words { head, tail, sleeping, room }
    }

    fn slot(&self, index: u32) -> &AtomicU32 {
        &self.slots[index as usize % self.slots.len()]
    }

    /// Sends entries 1 to `count`, one by one, as a `Producer` does.
    fn produce(&self, count: u32) {
        let capacity = self.slots.len() as u32;
        let (words, mut head) = (self.words(), 0);
        for index in 0..count {
            while index - head == capacity {
                head = words.retired();
                if index - head == capacity && words.may_wait_for_room(head) {
                    self.room_bell.wait();
                }
            }
            self.slot(index).store(index + 1, Relaxed);
            words.publish(index + 1);
            if words.take_sleeper() {
                self.bell.ring();
            }
        }
    }

    /// Takes `count` entries, as a `Consumer` does.
    fn consume(&self, count: u32) {
        let (words, mut head) = (self.words(), 0);
        while head < count {
            while head != words.published() {
                assert_eq!(self.slot(head).load(Relaxed), head + 1, "an entry seen too early");
                head += 1;
                words.retire(head);
            }
            let may_sleep = words.may_sleep(head);
            if words.take_room_waiter() {
                self.room_bell.ring();
            }
            if may_sleep && head < count {
                self.bell.wait();
                words.awake();
            }
        }
    }
}

fn check<const FENCED: bool>(capacity: usize, count: u32) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(move || {
        let model = Arc::new(Model::<FENCED>::new(capacity));
        let producer = Arc::clone(&model);
        let thread = thread::spawn(move || producer.produce(count));
        model.consume(count);
        thread.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    check::<true>(4, 2);
}

#[test]
fn no_waiter_for_room_is_lost() {
    check::<true>(1, 2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_a_wake_up_is_lost() {
    check::<false>(4, 2);
}
