//! How a report is shown: [`text`] on a terminal, [`html`] as a page with pictures,
//! [`headlines`] as a column beside other machines', [`picture`] as one picture.
//!
//! Nothing here names an experiment. What is particular to one is in its file.

pub mod answers;
pub mod draw;
pub mod headlines;
pub mod html;
pub mod notes;
pub mod picture;
pub mod plot;
pub mod tables;
pub mod text;
