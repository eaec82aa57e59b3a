//! Rendering of a report: [`text`] for the terminal, [`html`] as a page with plots, [`headlines`]
//! as a table of machines, [`picture`] as a single picture.
//!
//! Nothing here depends on a particular experiment.

pub mod answers;
pub mod draw;
pub mod headlines;
pub mod html;
pub mod notes;
pub mod picture;
pub mod plot;
pub mod tables;
pub mod text;
