//! A quantity over a run as one line of text.

/// The highest values of a quantity in equally long stretches of a run, in bounded space: a spike that lasted one event is in
/// the stretch that it fell into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Highs {
    /// Values that make one stretch.
    width: u64,
    /// Values in the last stretch.
    filled: u64,
    highs: Vec<u64>,
}

/// Stretches beyond which each two become one.
const MOST: usize = 64;

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Highs {
    /// Takes the next value in.
    #[inline]
    pub fn push(&mut self, value: u64) {
        if self.filled < self.width
            && let Some(last) = self.highs.last_mut()
        {
            *last = value.max(*last);
            self.filled += 1;
            return;
        }
        self.start(value);
    }

    #[cold]
    fn start(&mut self, value: u64) {
        if self.highs.len() == MOST {
            let pairs = self.highs.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0));
            self.highs = pairs.collect();
            self.width *= 2;
        }
        self.width = self.width.max(1);
        self.highs.push(value);
        self.filled = 1;
    }

    /// The highest value of all.
    pub fn highest(&self) -> u64 {
        self.highs.iter().copied().max().unwrap_or(0)
    }

    /// A bar for each stretch; one of `scale` has the full height, and no bar says 0.
    pub fn line(&self, scale: u64) -> String {
        let bar = |&high: &u64| match (high as f64 / scale.max(1) as f64 * 8.0).ceil() as usize {
            0 => ' ',
            height => HEIGHTS[height.min(8) - 1],
        };
        self.highs.iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heights_are_shares_of_the_scale() {
        let mut highs = Highs::default();
        [0, 1, 40, 80].iter().for_each(|&value| highs.push(value));
        assert_eq!(highs.line(80), " ▁▄█");
    }

    proptest! {
        /// However long a run is, the line is short, and its highest bar is the highest value, in its place.
        #[test]
        fn no_spike_is_lost(values in prop::collection::vec(0u64..1000, 1..2000), at: prop::sample::Index) {
            let mut values = values;
            let at = at.index(values.len());
            values[at] = 5000;
            let mut highs = Highs::default();
            values.iter().for_each(|&value| highs.push(value));
            let bars: Vec<char> = highs.line(5000).chars().collect();
            prop_assert!(bars.len() <= MOST && bars.len() >= values.len().min(MOST / 2));
            prop_assert_eq!(highs.highest(), 5000);
            let place = bars.iter().position(|bar| *bar == '█').unwrap() as u64;
            prop_assert_eq!(place, at as u64 / highs.width);
        }
    }
}
