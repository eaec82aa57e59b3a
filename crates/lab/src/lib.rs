//! Measures what encrypted packets cost, beside the libraries people use today.
