//! Static figures, for texts and for print.

mod bars;
mod frontiers;
mod lines;
mod scatter;
mod times;
mod waterfalls;

pub(crate) use scatter::{Labels, places as scatter_places};

use crate::data::RunSet;
use crate::report::ReportError;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::sync::Once;

/// What an image is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Vectors.
    Svg,
    /// Pixels.
    Png,
}

impl Image {
    /// The ending of such files.
    pub fn ending(self) -> &'static str {
        match self {
            Image::Svg => "svg",
            Image::Png => "png",
        }
    }
}

type Drawn = Result<bool, String>;
type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type PngArea<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

/// A figure: what it shows, and how it is drawn on either kind of image.
#[derive(Debug)]
pub struct Figure {
    /// The name of its file.
    pub name: &'static str,
    /// What it shows, for those who cannot see it.
    pub caption: &'static str,
    height: fn(&RunSet) -> u32,
    svg: fn(&RunSet, &SvgArea<'_>) -> Drawn,
    png: fn(&RunSet, &PngArea<'_>) -> Drawn,
}

macro_rules! figures {
    ($($name:literal, $draw:path, $height:expr, $caption:literal;)*) => {
        /// Every figure, in the order in which a text shows them.
        pub static FIGURES: &[Figure] = &[$(Figure {
            name: $name, caption: $caption, height: $height, svg: |set, area| $draw(set, area), png: |set, area| $draw(set, area),
        },)*];
    };
}

figures! {
    "memory", lines::memory, |_| 420, "Reserved bytes over time for each policy; grey: bytes that the program asked for";
    "peaks", bars::peaks, bars::height, "Peaks of each policy: requested, active and reserved bytes";
    "losses", bars::losses, bars::height, "Where the bytes were when the reservation peaked";
    "calls", lines::calls, |_| 420, "Device calls since the start";
    "times", times::draw, times::height, "Times of the calls that take most: the share that took no longer (modelled: priced by the device profile, not measured)";
    "waterfall", waterfalls::draw, waterfalls::height, "From the live bound to the peak reservation: what each rule of a policy costs";
    "scatter", scatter::scatter, |_| 480, "Time in device calls against fragmentation; the line joins policies that none beats in both";
    "frontier", frontiers::draw, frontiers::height, "On how little memory the job lives: a dot where it does, a cross where it is refused memory; the line is the bound";
}

/// Width of every figure in pixels.
const WIDTH: u32 = 900;

/// Pixels that a row of bars takes.
const BAR: u32 = 44;

impl Figure {
    /// The image, or `None` if the runs do not hold what the figure shows.
    ///
    /// # Errors
    /// The library could not draw it.
    pub fn draw(&self, set: &RunSet, image: Image) -> Result<Option<Vec<u8>>, ReportError> {
        static FONT: Once = Once::new();
        FONT.call_once(|| {
            let font = include_bytes!("../../assets/fonts/DejaVuSans.ttf");
            let registered = register_font("sans-serif", FontStyle::Normal, font);
            assert!(registered.is_ok(), "the font that ships with poolsim can be read");
        });
        let wrong = |what: String| ReportError::Figure { figure: self.name, what };
        let height = (self.height)(set);
        let drawn = match image {
            Image::Svg => {
                let mut text = String::new();
                let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
                let drawn = (self.svg)(set, &area).map_err(wrong)?;
                area.present().map_err(|e| wrong(e.to_string()))?;
                drop(area);
                drawn.then(|| text.into_bytes())
            }
            Image::Png => {
                let mut pixels = vec![0; (WIDTH * height * 3) as usize];
                let drawn = {
                    let backend = BitMapBackend::with_buffer(&mut pixels, (WIDTH, height));
                    (self.png)(set, &backend.into_drawing_area()).map_err(wrong)?
                };
                if drawn { Some(png(&pixels, WIDTH, height).map_err(wrong)?) } else { None }
            }
        };
        Ok(drawn)
    }
}

fn png(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, String> {
    use image::ImageEncoder;
    let mut bytes = Vec::new();
    image::codecs::png::PngEncoder::new(&mut bytes)
        .write_image(pixels, width, height, image::ColorType::Rgb8)
        .map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Colours that colour-blind readers can tell apart (Okabe and Ito), darkest first.
pub(crate) const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
];

/// The colour of the n-th run.
fn colour(n: usize) -> RGBColor {
    PALETTE[n % PALETTE.len()]
}

/// Characters of a label that fit a figure.
const LABEL: usize = 30;

/// A label of at most so many characters.
pub(crate) fn short(label: &str, longest: usize) -> String {
    if label.chars().count() <= longest {
        return label.into();
    }
    label.chars().take(longest - 1).chain(['…']).collect()
}

const GIB: f64 = (1u64 << 30) as f64;

/// The text's font.
fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().into()
}

/// The library's error in words.
fn words<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}
