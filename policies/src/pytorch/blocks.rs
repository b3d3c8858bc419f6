//! The block table: every block of one allocator, its neighbours and its place in a free index.

use poolsim_core::units::{BlockId, Bytes, DevAddr};

/// Marks "no block". Block 0 is nobody's: it is always in use, so that nothing merges with it, and takes the
/// writes meant for a neighbour that is not there, which spares hot code branches that cannot be predicted. It is the last in
/// the order of every free index, so that a search ends at it.
pub const NONE: u32 = 0;

/// Marks "no slot".
pub const NO_SLOT: u32 = u32::MAX;

/// The block belongs to the program.
pub const ALLOCATED: u8 = 1;
/// The block has memory behind it. False only for address space of expandable segments.
pub const MAPPED: u8 = 2;
/// The block lies in an expandable segment.
pub const EXPANDABLE: u8 = 4;
/// Other streams were recorded on the block, or their fences have not passed yet.
pub const SHARED: u8 = 8;
/// The block lies in a free index.
pub const INDEXED: u8 = 16;

/// Sizes are kept in units of 512 bytes: 32 bits are then enough for every reservation up to 2 TiB.
pub const UNIT_SHIFT: u32 = 9;

/// The order of a free index: size, then address. One number, so that comparing takes one branch.
#[inline]
pub fn key(units: u32, addr: DevAddr) -> u128 {
    u128::from(units) << 64 | u128::from(addr)
}

/// A block, in half a cache line. Neighbours are those of the same segment, in address order.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First address.
    pub addr: DevAddr,
    /// Length in units of 512 bytes.
    pub units: u32,
    /// The neighbour below, or [`NONE`].
    pub prev: u32,
    /// The neighbour above, or [`NONE`].
    pub next: u32,
    /// The block before it in its class of the free index, or [`NONE`].
    pub before: u32,
    /// The block after it in its class of the free index, or [`NONE`].
    pub after: u32,
    /// The heap (pool, stream and size class) that the block belongs to.
    pub heap: u16,
    /// Flag bits.
    pub flags: u8,
}

impl Block {
    /// Length in bytes.
    #[inline]
    pub fn size(&self) -> Bytes {
        Bytes::from(self.units) << UNIT_SHIFT
    }

    /// First address behind the block.
    #[inline]
    pub fn end(&self) -> DevAddr {
        self.addr + self.size()
    }

    /// Whether a flag is set.
    #[inline]
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// A block that fills a new segment.
    #[inline]
    pub fn alone(addr: DevAddr, units: u32, heap: u16, flags: u8) -> Block {
        let [prev, next, before, after] = [NONE; 4];
        Block { addr, units, prev, next, before, after, heap, flags }
    }

    /// The order of a free index: size, then address.
    #[inline]
    pub fn key(&self) -> u128 {
        key(self.units, self.addr)
    }

    /// 0 if the block serves small requests, 1 if large ones.
    #[inline]
    pub fn size_class(&self) -> usize {
        usize::from(self.heap & 1)
    }

    /// Whether the block has a neighbour.
    #[inline]
    pub fn is_split(&self) -> bool {
        (self.prev | self.next) != NONE
    }

    /// Whether nobody holds the block: it is free, or unmapped address space.
    #[inline]
    pub fn usable(&self) -> bool {
        self.flags & (ALLOCATED | SHARED) == 0
    }
}

/// For whom a block is, or was: free blocks keep stale values, as PyTorch's do.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// Bytes asked for.
    pub requested: Bytes,
    /// The trace's slot.
    pub slot: u32,
}

/// What a block that nobody had yet says of its user.
const NO_USER: User = User { requested: 0, slot: NO_SLOT };

/// All blocks by number, with the side tables that only some operations touch.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The blocks. Unused entries are on `unused`.
    pub table: Vec<Block>,
    /// The user of each block.
    pub users: Vec<User>,
    /// Lookup count of the pool when the block entered the index (ages for garbage collection).
    pub ages: Vec<u32>,
    unused: Vec<u32>,
}

impl Default for Blocks {
    fn default() -> Self {
        let mut blocks =
            Blocks { table: Vec::new(), users: Vec::new(), ages: Vec::new(), unused: Vec::new() };
        let nobody = blocks.grow(Block::alone(DevAddr::MAX, u32::MAX, 0, ALLOCATED));
        debug_assert_eq!(nobody, NONE);
        blocks
    }
}

impl Blocks {
    /// A new block's number.
    #[inline(always)]
    pub fn add(&mut self, block: Block) -> u32 {
        if let Some(id) = self.unused.pop() {
            self.table[id as usize] = block;
            self.users[id as usize] = NO_USER;
            return id;
        }
        self.grow(block)
    }

    #[cold]
    fn grow(&mut self, block: Block) -> u32 {
        let id = u32::try_from(self.table.len()).expect("fewer than 2^32 blocks");
        self.table.push(block);
        self.users.push(NO_USER);
        self.ages.push(0);
        id
    }

    /// The number may be used again.
    #[inline]
    pub fn drop_block(&mut self, id: u32) {
        self.table[id as usize].flags = 0;
        self.unused.push(id);
    }

    /// A block.
    #[inline]
    pub fn get(&self, id: u32) -> &Block {
        &self.table[id as usize]
    }

    /// A block, to change.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Block {
        &mut self.table[id as usize]
    }

    /// Cuts the low `units` off a block into a new block before it. The old block keeps its number and is the
    /// upper part, as in PyTorch, where that decides which one keeps a stale requested size.
    ///
    /// Reads and writes field by field: a block that is put together first and copied then, or copied after
    /// its flags were written, makes the processor wait for the writes.
    #[inline(always)]
    pub fn cut_low(&mut self, id: u32, units: u32) -> u32 {
        let low_id = match self.unused.pop() {
            Some(free) => free,
            None => self.grow(Block::alone(0, 0, 0, 0)),
        };
        let old = self.get(id);
        debug_assert!(units < old.units);
        let (addr, prev, heap) = (old.addr, old.prev, old.heap);
        let flags = old.flags & (MAPPED | EXPANDABLE);
        let low = self.get_mut(low_id);
        low.addr = addr;
        low.units = units;
        low.prev = prev;
        low.next = id;
        low.heap = heap;
        low.flags = flags;
        self.users[low_id as usize].requested = 0;
        self.get_mut(prev).next = low_id;
        let high = self.get_mut(id);
        high.prev = low_id;
        high.units -= units;
        high.addr = addr + (Bytes::from(units) << UNIT_SHIFT);
        low_id
    }

    /// The handle that the policy hands out for a block.
    #[inline]
    pub fn handle(id: u32) -> BlockId {
        BlockId(id)
    }
}
