//! Runs to files: which formats there are, and what each is made of.

use crate::data::{DataError, RunSet};
use crate::figure::{FIGURES, Figure, Image};
use crate::{markdown, page};
use poolsim_core::metric::METRICS;
use std::path::{Path, PathBuf};

/// A file to write, of a kind that its ending names.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Page,
    Markdown,
    Csv,
    Parquet,
    Figures(Vec<&'static Figure>, Image),
}

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A table failed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A figure could not be drawn.
    #[error("figure {figure}: {what}")]
    Figure {
        /// Which.
        figure: &'static str,
        /// The library's words.
        what: String,
    },
}

impl Target {
    /// Understands a path.
    ///
    /// # Errors
    /// An ending or a figure that does not exist, in words that say what there is.
    pub fn new(path: &Path) -> Result<Target, String> {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let kind = match ending {
            "html" => Kind::Page,
            "md" => Kind::Markdown,
            "csv" => Kind::Csv,
            "parquet" => Kind::Parquet,
            "svg" => Kind::Figures(figures(path)?, Image::Svg),
            "png" => Kind::Figures(figures(path)?, Image::Png),
            _ => {
                return Err(format!(
                    "{}: the ending chooses the format; there are .html, .md, .csv, .parquet, .svg and .png",
                    path.display()
                ));
            }
        };
        Ok(Target { path: path.into(), kind })
    }
}

/// The figures that a file's name asks for.
fn figures(path: &Path) -> Result<Vec<&'static Figure>, String> {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    if stem == "*" {
        return Ok(FIGURES.iter().collect());
    }
    FIGURES.iter().find(|figure| figure.name == stem).map(|figure| vec![figure]).ok_or_else(|| {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        format!(
            "{}: a figure is named by its file, and there is no figure `{stem}`; there are {}, and * for all of them",
            path.display(),
            names.join(", ")
        )
    })
}

/// The files of a report with their bytes.
///
/// # Errors
/// A figure that could not be drawn; a table that could not be written.
pub fn render(set: &RunSet, target: &Target) -> Result<Vec<(PathBuf, Vec<u8>)>, ReportError> {
    let path = target.path.clone();
    Ok(match &target.kind {
        Kind::Page => vec![(path, page::render(set).into_bytes())],
        Kind::Csv => vec![(path, csv(set))],
        Kind::Parquet => {
            let bytes = set.results_bytes(&path)?;
            vec![(path, bytes)]
        }
        Kind::Markdown => markdown::render(set, &path)?,
        Kind::Figures(figures, image) => {
            let mut files = Vec::new();
            for figure in figures {
                if let Some(bytes) = figure.draw(set, *image)? {
                    let name = format!("{}.{}", figure.name, image.ending());
                    files.push((path.with_file_name(name), bytes));
                }
            }
            files
        }
    })
}

/// One row a run, one column a metric, plain numbers.
fn csv(set: &RunSet) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let head = ["label", "verdict", "policy", "target", "trace", "trace_digest"];
    let written = out.write_record(head.into_iter().chain(METRICS.iter().map(|m| m.name)));
    written.expect("writing to memory cannot fail");
    for run in &set.runs {
        let p = &run.record.provenance;
        let words = [&run.label, &run.verdict, &p.policy, &p.target, &p.trace, &p.trace_digest];
        let numbers = METRICS.iter().map(|metric| {
            run.record.metric(metric.name).map_or_else(String::new, |v| match v {
                poolsim_core::record::Value::Int(n) => n.to_string(),
                poolsim_core::record::Value::Real(x) => x.to_string(),
            })
        });
        let row = words.into_iter().cloned().chain(numbers);
        out.write_record(row).expect("every row is as long as the first");
    }
    out.into_inner().expect("writing to memory cannot fail")
}
