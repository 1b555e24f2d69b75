//! Connections by slot and generation.
//!
//! A slot is used again, its generation never: whoever still holds the name of a connection that
//! ended (an event of the poller, an output of the core, an operator's listing) finds nothing
//! instead of its successor.

use dlm_core::ClientId;

/// A table of connections.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Puts a value into a free slot.
    ///
    /// # Panics
    /// If 2^32 slots are in use, or one slot was used 2^32 times: descriptors end long before the
    /// one, and a million connections per second take an hour for the other.
    pub fn insert(&mut self, value: T) -> ClientId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("fewer connections than 2^32")
        });
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.checked_add(1).expect("fewer than 2^32 uses");
        place.value = Some(value);
        ClientId::new(slot, place.generation)
    }

    /// Takes a value out.
    pub fn remove(&mut self, id: ClientId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let value = slot.value.take_if(|_| slot.generation == id.generation)?;
        self.free.push(id.slot);
        Some(value)
    }

    /// A value.
    #[inline]
    pub fn get(&self, id: ClientId) -> Option<&T> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == id.generation)
    }

    /// A value, to change.
    #[inline]
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values with their names, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = ClientId::new(index as u32, slot.generation);
            Some((id, slot.value.as_mut()?))
        })
    }

    /// All values with their names.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = ClientId::new(index as u32, slot.generation);
            Some((id, slot.value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_names_never() {
        let mut table = Table::default();
        let a = table.insert("a");
        let b = table.insert("b");
        assert_eq!((table.get(a), table.get(b), table.len()), (Some(&"a"), Some(&"b"), 2));
        assert_eq!(table.remove(a), Some("a"));
        assert_eq!((table.remove(a), table.get(a), table.len()), (None, None, 1));
        let c = table.insert("c");
        assert_eq!(c.slot, a.slot);
        assert_ne!(c.generation, a.generation);
        assert!(table.get(a).is_none() && table.get_mut(a).is_none());
        assert_eq!(table.remove(a), None);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(c, &"c"), (b, &"b")]);
        assert!(table.get(ClientId::new(99, 1)).is_none());
        table.remove(b);
        table.remove(c);
        assert!(table.is_empty());
    }
}
