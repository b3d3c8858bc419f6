//! A packing problem: pieces of memory with a size and a time.

use super::Lifetime;
use poolsim_core::Bytes;

/// What has to be placed. Times are sections of [`Instance`], the interval is half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First section.
    pub lower: u32,
    /// The section after its last.
    pub upper: u32,
    /// Bytes, after rounding.
    pub size: Bytes,
}

impl Piece {
    /// Sections that it covers.
    pub fn length(&self) -> u64 {
        u64::from(self.upper - self.lower)
    }

    /// Whether both need memory at the same time.
    pub fn meets(&self, other: &Piece) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }
}

/// A dynamic storage allocation problem.
///
/// Time is cut into *sections*: a new one starts at a request that follows a free. What lives at one moment of a
/// section lives at its end, so two pieces meet in time exactly if they share a section:
///
/// ```text
/// events    +a +b -a +c -b -c +d
/// sections  |--0--|  1  |     |2
/// a         [0,1)    b [0,2)    c [1,2)    d [2,3)
/// ```
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// The pieces, in the order of the lifetimes that they were made of.
    pub pieces: Vec<Piece>,
    /// Number of sections.
    pub sections: u32,
}

impl Instance {
    /// The problem of placing these lifetimes, their sizes changed by `size`.
    pub fn new<'a>(
        items: impl ExactSizeIterator<Item = &'a Lifetime> + Clone,
        size: impl Fn(&Lifetime) -> Bytes,
    ) -> Instance {
        assert!(u32::try_from(items.len()).is_ok(), "more than 2^32 lifetimes");
        // Frees come first: the interval is half open.
        let starts = items.clone().enumerate().map(|(i, item)| (item.lower, true, i));
        let ends = items.clone().enumerate().map(|(i, item)| (item.upper, false, i));
        let mut moments: Vec<(u64, bool, usize)> = starts.chain(ends).collect();
        moments.sort_unstable();
        let mut pieces: Vec<Piece> =
            items.map(|item| Piece { lower: 0, upper: 0, size: size(item) }).collect();
        let (mut section, mut freed) = (0, false);
        for (_, starts, i) in moments {
            if starts {
                section += u32::from(std::mem::take(&mut freed));
                pieces[i].lower = section;
            } else {
                freed = true;
                pieces[i].upper = section + 1;
            }
        }
        let sections = if pieces.is_empty() { 0 } else { section + 1 };
        Instance { pieces, sections }
    }

    /// Bytes live in each section.
    pub fn loads(&self) -> Vec<Bytes> {
        let mut change = vec![0i128; self.sections as usize + 1];
        for piece in &self.pieces {
            change[piece.lower as usize] += i128::from(piece.size);
            change[piece.upper as usize] -= i128::from(piece.size);
        }
        let running = change.iter().scan(0i128, |live, change| {
            *live += change;
            Some(Bytes::try_from(*live).unwrap_or(Bytes::MAX))
        });
        running.take(self.sections as usize).collect()
    }

    /// The load: bytes live at once, below which nothing can be packed.
    pub fn load(&self) -> Bytes {
        self.loads().into_iter().max().unwrap_or(0)
    }
}
