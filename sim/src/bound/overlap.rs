//! Which of the pieces placed so far share time with one?

use super::Piece;

/// A tree over sections. Each piece is listed where it covers a node's sections wholly (`cover`, in about two nodes
/// a level) and above those nodes (`inside`), so that a query finds each listed piece without visiting its sections.
pub(super) struct OverlapIndex {
    width: u32,
    cover: Vec<Vec<u32>>,
    inside: Vec<Vec<u32>>,
    /// By piece: the last query that found it.
    stamps: Vec<u32>,
    query: u32,
}

impl OverlapIndex {
    /// An empty index for so many sections and pieces.
    pub(super) fn new(sections: u32, pieces: usize) -> Self {
        let width = sections.max(1).next_power_of_two();
        let nodes = 2 * width as usize;
        OverlapIndex {
            width,
            cover: vec![Vec::new(); nodes],
            inside: vec![Vec::new(); nodes],
            stamps: vec![0; pieces],
            query: 0,
        }
    }

    /// Lists a piece.
    pub(super) fn insert(&mut self, id: u32, piece: &Piece) {
        self.insert_below(1, 0, self.width, id, piece);
    }

    fn insert_below(&mut self, node: usize, start: u32, width: u32, id: u32, piece: &Piece) {
        let end = start + width;
        if piece.upper <= start || end <= piece.lower {
            return;
        }
        if piece.lower <= start && end <= piece.upper {
            self.cover[node].push(id);
            return;
        }
        self.inside[node].push(id);
        self.insert_below(2 * node, start, width / 2, id, piece);
        self.insert_below(2 * node + 1, start + width / 2, width / 2, id, piece);
    }

    /// Appends every listed piece that meets `piece`, each once.
    pub(super) fn find(&mut self, piece: &Piece, found: &mut Vec<u32>) {
        self.query += 1;
        self.find_below(1, 0, self.width, piece, found);
    }

    fn find_below(
        &mut self,
        node: usize,
        start: u32,
        width: u32,
        piece: &Piece,
        found: &mut Vec<u32>,
    ) {
        let end = start + width;
        if piece.upper <= start || end <= piece.lower {
            return;
        }
        let whole = piece.lower <= start && end <= piece.upper;
        let lists = [Some(&self.cover[node]), whole.then_some(&self.inside[node])];
        for &id in lists.into_iter().flatten().flatten() {
            if std::mem::replace(&mut self.stamps[id as usize], self.query) != self.query {
                found.push(id);
            }
        }
        if !whole {
            self.find_below(2 * node, start, width / 2, piece, found);
            self.find_below(2 * node + 1, start + width / 2, width / 2, piece, found);
        }
    }
}
