//! Indexed storage that neither moves its entries nor stalls to grow, and gives memory back.
//!
//! Entries live in chunks that are allocated whole: growing never copies, so no request pays for the
//! million before it. Freed places are taken again *oldest first* and only while enough of them are
//! free, so that a place's generation, part of a lock id, takes long to come round (semantics.md D1).
//! Places that were never used come first: they cost nothing before, neither in memory nor in a copy.
//! A chunk without entries is dropped once there is free room beside it.

/// Places in a chunk.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;
/// "No place": place 0 is never used.
pub(crate) const NIL: u32 = 0;

/// Storage of `T` by index. Index 0 is never given out.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// Chunks whose places were dropped and can be made again.
    dropped: Vec<u32>,
    /// The first place that was never used; so is every one behind it.
    fresh: u32,
    /// Vacated places, oldest first.
    free_head: u32,
    free_tail: u32,
    /// Places to be had, vacated and fresh.
    free_len: usize,
    len: usize,
    /// A place is taken again only while more than this many are free.
    free_min: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// The places used so far.
    places: Option<Vec<Place<T>>>,
    /// How often each place was vacated; outlives the places.
    generations: Vec<u16>,
    used: usize,
}

#[derive(Clone, Debug)]
enum Place<T> {
    Vacant { prev: u32, next: u32 },
    Used(T),
}

impl<T> Slab<T> {
    /// Empty storage that keeps `free_min` vacated places unused.
    pub(crate) fn new(free_min: usize) -> Self {
        Self {
            chunks: Vec::new(),
            dropped: Vec::new(),
            fresh: NIL,
            free_head: NIL,
            free_tail: NIL,
            free_len: 0,
            len: 0,
            free_min,
        }
    }

    /// Entries in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the highest index ever used.
    pub(crate) fn end(&self) -> u32 {
        self.fresh
    }

    /// Stores what `make` builds from the new index and that place's generation.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32, u16) -> T) -> u32 {
        if self.free_len <= self.free_min {
            self.grow();
        }
        self.len += 1;
        if (self.fresh as usize) < self.chunks.len() * CHUNK {
            let index = self.fresh;
            self.use_fresh(Place::Used(make(index, 0)));
            self.chunks[split(index).0].used += 1;
            return index;
        }
        let index = self.free_head;
        let (chunk, place) = split(index);
        self.unlink(index);
        let chunk = &mut self.chunks[chunk];
        let value = make(index, chunk.generations[place]);
        chunk.used += 1;
        chunk.places.as_mut().expect("a free place lies in a live chunk")[place] =
            Place::Used(value);
        index
    }

    /// Makes the next place that was never used.
    fn use_fresh(&mut self, place: Place<T>) {
        let chunk = &mut self.chunks[split(self.fresh).0];
        chunk.places.as_mut().expect("a fresh place lies in a live chunk").push(place);
        chunk.generations.push(0);
        self.fresh += 1;
        self.free_len -= 1;
    }

    /// Takes the entry out; its place is free again, in the next generation.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let (chunk_index, place) = split(index);
        let chunk = &mut self.chunks[chunk_index];
        let places = chunk.places.as_mut().expect("an entry lies in a live chunk");
        let vacant = Place::Vacant { prev: NIL, next: NIL };
        let Place::Used(value) = core::mem::replace(&mut places[place], vacant) else {
            panic!("place {index} is not in use");
        };
        chunk.generations[place] = chunk.generations[place].wrapping_add(1);
        chunk.used -= 1;
        let empty = chunk.used == 0 && chunk.generations.len() == CHUNK;
        self.len -= 1;
        self.link(index);
        if empty && self.free_len > self.free_min + 2 * CHUNK {
            self.drop_chunk(chunk_index);
        }
        value
    }

    /// The entry of this index, if it is in use.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, place) = split(index);
        match self.chunks.get(chunk)?.places.as_ref()?.get(place)? {
            Place::Used(value) => Some(value),
            Place::Vacant { .. } => None,
        }
    }

    /// How often a place was vacated.
    pub(crate) fn vacated(&self, index: u32) -> u16 {
        let (chunk, place) = split(index);
        self.chunks.get(chunk).and_then(|c| c.generations.get(place)).copied().unwrap_or(0)
    }

    /// As [`Self::get`], to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (chunk, place) = split(index);
        match self.chunks.get_mut(chunk)?.places.as_mut()?.get_mut(place)? {
            Place::Used(value) => Some(value),
            Place::Vacant { .. } => None,
        }
    }

    /// A new chunk, all free; places of a dropped one first.
    fn grow(&mut self) {
        if let Some(index) = self.dropped.pop() {
            let places = (0..CHUNK).map(|_| Place::Vacant { prev: NIL, next: NIL }).collect();
            self.chunks[index as usize].places = Some(places);
            let first = usize::from(index == 0);
            for place in first..CHUNK {
                self.link(index * CHUNK as u32 + place as u32);
            }
            return;
        }
        let generations = Vec::with_capacity(CHUNK);
        let places = Some(Vec::with_capacity(CHUNK));
        self.chunks.push(Chunk { places, generations, used: 0 });
        self.free_len += CHUNK;
        if self.fresh == NIL {
            // Place 0 stays unlinked for ever: it is NIL.
            self.use_fresh(Place::Vacant { prev: NIL, next: NIL });
        }
    }

    fn drop_chunk(&mut self, chunk: usize) {
        let first = usize::from(chunk == 0);
        for place in first..CHUNK {
            self.unlink((chunk * CHUNK + place) as u32);
        }
        self.chunks[chunk].places = None;
        self.dropped.push(chunk as u32);
    }

    /// Appends a vacant place to the free list.
    fn link(&mut self, index: u32) {
        let tail = self.free_tail;
        *self.vacant(index) = (tail, NIL).into();
        if tail == NIL {
            self.free_head = index;
        } else if let Place::Vacant { next, .. } = self.vacant(tail) {
            *next = index;
        }
        self.free_tail = index;
        self.free_len += 1;
    }

    /// Takes a vacant place out of the free list.
    fn unlink(&mut self, index: u32) {
        let Place::Vacant { prev, next } = *self.vacant(index) else {
            panic!("place {index} of the free list is in use");
        };
        if prev == NIL {
            self.free_head = next;
        } else if let Place::Vacant { next: link, .. } = self.vacant(prev) {
            *link = next;
        }
        if next == NIL {
            self.free_tail = prev;
        } else if let Place::Vacant { prev: link, .. } = self.vacant(next) {
            *link = prev;
        }
        self.free_len -= 1;
    }

    fn vacant(&mut self, index: u32) -> &mut Place<T> {
        let (chunk, place) = split(index);
        &mut self.chunks[chunk].places.as_mut().expect("a free place lies in a live chunk")[place]
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("an index kept by the engine is in use")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("an index kept by the engine is in use")
    }
}

impl<T> From<(u32, u32)> for Place<T> {
    fn from((prev, next): (u32, u32)) -> Self {
        Self::Vacant { prev, next }
    }
}

#[inline]
fn split(index: u32) -> (usize, usize) {
    ((index >> CHUNK_BITS) as usize, index as usize & (CHUNK - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_oldest_first_and_never_nil() {
        let mut slab = Slab::new(100);
        let a = slab.insert(|index, generation| (index, generation));
        assert_ne!(a, NIL);
        slab.remove(a);
        let mut seen = 0;
        loop {
            let b = slab.insert(|index, generation| (index, generation));
            if b == a {
                assert_eq!(slab[b].1, 1, "the second generation of the place");
                break;
            }
            seen += 1;
            slab.remove(b);
        }
        assert!(seen >= 100, "only {seen} other places were used before");
    }

    #[test]
    fn empty_chunks_are_dropped_and_generations_survive() {
        let mut slab = Slab::new(0);
        let all: Vec<u32> = (0..20 * CHUNK).map(|_| slab.insert(|_, g| g)).collect();
        for index in &all {
            slab.remove(*index);
        }
        assert_eq!(slab.len(), 0);
        assert!(slab.chunks.iter().filter(|c| c.places.is_some()).count() <= 4);
        for _ in 0..20 * CHUNK {
            let index = slab.insert(|_, g| g);
            let expected = u16::from(all.contains(&index) && index < 20 * CHUNK as u32);
            assert!(slab[index] >= expected, "place {index} started again at generation 0");
        }
    }
}
