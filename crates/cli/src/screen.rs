//! A live table in a terminal, and the same table as plain lines for a pipe.

use crate::terminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

/// The period that the figures cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    /// Everything so far.
    All,
    /// The last window.
    Latest,
}

/// A column of the table.
pub(crate) struct Column<S> {
    pub(crate) name: &'static str,
    pub(crate) width: u16,
    /// Text is left-aligned, numbers right-aligned.
    pub(crate) is_text: bool,
    /// The order that this column stands for, if any.
    pub(crate) sort: Option<S>,
    /// Priority for removal: on a narrow terminal, columns with the highest value go first.
    pub(crate) drop_order: u8,
}

impl<S> Column<S> {
    pub(crate) const fn number(name: &'static str, width: u16, sort: S, drop_order: u8) -> Self {
        Self {
            name,
            width,
            is_text: false,
            sort: Some(sort),
            drop_order,
        }
    }

    #[cfg(feature = "peers")]
    pub(crate) const fn sorted_text(
        name: &'static str,
        width: u16,
        sort: S,
        drop_order: u8,
    ) -> Self {
        Self {
            name,
            width,
            is_text: true,
            sort: Some(sort),
            drop_order,
        }
    }

    /// Text that gives no order.
    #[cfg(feature = "gateway")]
    pub(crate) const fn text(name: &'static str, width: u16, drop_order: u8) -> Self {
        Self {
            name,
            width,
            is_text: true,
            sort: None,
            drop_order,
        }
    }
}

/// The data of a table.
pub(crate) trait Content {
    /// Sort orders.
    type Sort: Copy + PartialEq + 'static;

    const COLUMNS: &'static [Column<Self::Sort>];

    /// Keys that choose a sort order, with its name.
    const KEYS: &'static [(char, &'static str, Self::Sort)];

    /// Whether `sort` also marks the header of a column with another order.
    fn is_by(_sort: Self::Sort, _column: Self::Sort) -> bool {
        false
    }

    /// The rows, with a cell for each column, and the lines below the table.
    fn page(&self, sort: Self::Sort, period: Period) -> (Vec<Vec<String>>, Vec<String>);
}

/// Which part of the table is shown, and how.
pub(crate) struct View<S> {
    pub(crate) sort: S,
    period: Period,
    /// Index of the first visible row.
    first: usize,
    /// A notice below the table.
    pub(crate) notice: Option<String>,
}

impl<S: Copy + PartialEq + 'static> View<S> {
    pub(crate) fn new(sort: S) -> Self {
        Self {
            sort,
            period: Period::All,
            first: 0,
            notice: None,
        }
    }

    /// Handles a key. Returns false if it quits.
    pub(crate) fn press<C: Content<Sort = S>>(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if control => return false,
            KeyCode::Char('l') => {
                self.period = match self.period {
                    Period::All => Period::Latest,
                    Period::Latest => Period::All,
                };
            }
            KeyCode::Char(code) => {
                if let Some((.., sort)) = C::KEYS.iter().find(|(key, ..)| *key == code) {
                    self.sort = *sort;
                    self.first = 0;
                }
            }
            KeyCode::Left => self.step::<C>(false),
            KeyCode::Right => self.step::<C>(true),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::PageDown => self.first = self.first.saturating_add(20),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        true
    }

    /// Sorts by the next column to the right or left that has an order.
    fn step<C: Content<Sort = S>>(&mut self, to_the_right: bool) {
        let mut sorts: Vec<S> = C::COLUMNS.iter().filter_map(|column| column.sort).collect();
        sorts.dedup();
        let here = sorts
            .iter()
            .position(|sort| *sort == self.sort || C::is_by(self.sort, *sort));
        let next = match (here, to_the_right) {
            (None, true) => 0,
            (None, false) => sorts.len().saturating_sub(1),
            (Some(here), true) => (here + 1) % sorts.len(),
            (Some(here), false) => (here + sorts.len() - 1) % sorts.len(),
        };
        if let Some(sort) = sorts.get(next) {
            self.sort = *sort;
            self.first = 0;
        }
    }
}

/// Draws the table and the lines below it. Returns the index of the first visible row, which is
/// limited by the number of rows.
pub(crate) fn draw<C: Content>(frame: &mut Frame<'_>, content: &C, view: &View<C::Sort>) -> usize {
    let (all, mut below) = content.page(view.sort, view.period);
    below.extend(view.notice.clone());
    let height = u16::try_from(below.len()).unwrap_or(u16::MAX);
    let parts = [
        Constraint::Min(2),
        Constraint::Length(height),
        Constraint::Length(1),
    ];
    let [above, middle, last] = Layout::vertical(parts).areas(frame.area());

    let columns = columns(C::COLUMNS, above.width);
    let aligned = |place: usize, text: String| match C::COLUMNS[place].is_text {
        true => Cell::from(text),
        false => Cell::from(Line::from(text).right_aligned()),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = columns.iter().map(|&place| {
        let column = &C::COLUMNS[place];
        let cell = aligned(place, column.name.to_owned());
        let by_it = |of: C::Sort| of == view.sort || C::is_by(view.sort, of);
        match column.sort.is_some_and(by_it) {
            true => cell.style(bold.add_modifier(Modifier::REVERSED)),
            false => cell.style(bold),
        }
    });
    let head = Row::new(head.collect::<Vec<_>>());
    // Do not scroll beyond the last page.
    let page = usize::from(above.height.saturating_sub(1));
    let first = view.first.min(all.len().saturating_sub(page));
    let rows = all.iter().skip(first).take(page).map(|cells| {
        let cells = columns
            .iter()
            .map(|&place| aligned(place, cells[place].clone()));
        Row::new(cells.collect::<Vec<_>>())
    });
    let widths = columns
        .iter()
        .map(|&place| Constraint::Length(C::COLUMNS[place].width));
    let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>());
    frame.render_widget(table.header(head).column_spacing(1), above);

    let below: Vec<Line<'_>> = below.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(below), middle);
    let period = match view.period {
        Period::All => "l last window",
        Period::Latest => "l since start",
    };
    let sorts: String = C::KEYS
        .iter()
        .map(|(key, name, _)| format!("{key} {name}  "))
        .collect();
    let keys = format!("q quit  sort by: {sorts}\u{2190}\u{2192} column  {period}");
    let keys = Line::styled(keys, Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Paragraph::new(keys), last);
    first
}

/// Indices of the columns that fit.
fn columns<S>(all: &[Column<S>], width: u16) -> Vec<usize> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    loop {
        let needs: u16 = places.iter().map(|&place| all[place].width + 1).sum();
        let drop_order = places.iter().map(|&place| all[place].drop_order).max();
        match drop_order {
            Some(drop_order) if drop_order > 0 && needs.saturating_sub(1) > width => {
                places.retain(|&place| all[place].drop_order < drop_order);
            }
            _ => return places,
        }
    }
}

/// The table as text, with at most `rows` rows, and the lines below it.
pub(crate) fn lines<C: Content>(content: &C, sort: C::Sort, rows: usize) -> String {
    let (all, below) = content.page(sort, Period::All);
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let mut line = String::new();
        for (column, cell) in C::COLUMNS.iter().zip(cells) {
            let width = usize::from(column.width);
            let _ = match column.is_text {
                true => write!(line, "{cell:<width$} "),
                false => write!(line, "{cell:>width$} "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    let names = C::COLUMNS.iter().map(|column| column.name.to_owned());
    line(&names.collect::<Vec<_>>());
    all.iter().take(rows).for_each(|cells| line(cells));
    if all.len() > rows {
        let _ = writeln!(text, "        and {} more peers", all.len() - rows);
    }
    for line in below {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Formats seconds in at most four characters.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a number in about five characters, followed by a unit prefix.
pub(crate) fn short(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0} "),
    }
}

/// The terminal. Dropping this restores it, also after a panic.
pub(crate) struct Screen<S> {
    terminal: DefaultTerminal,
    pub(crate) view: View<S>,
}

impl<S: Copy + PartialEq + 'static> Screen<S> {
    pub(crate) fn open(sort: S) -> io::Result<Self> {
        terminal::set_restore(Some(ratatui::restore));
        let terminal = ratatui::try_init().inspect_err(|_| terminal::restore())?;
        Ok(Self {
            terminal,
            view: View::new(sort),
        })
    }

    pub(crate) fn show(&mut self, content: &impl Content<Sort = S>) -> io::Result<()> {
        let view = &mut self.view;
        self.terminal
            .draw(|frame| view.first = draw(frame, content, view))?;
        Ok(())
    }

    /// Handles the keys pressed since the last call. Returns false if one quits.
    pub(crate) fn handle_keys<C: Content<Sort = S>>(&mut self, content: &C) -> io::Result<bool> {
        let mut is_new = false;
        while event::poll(Duration::ZERO)? {
            is_new = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !self.view.press::<C>(key)
            {
                return Ok(false);
            }
        }
        if is_new {
            self.show(content)?;
        }
        Ok(true)
    }
}

impl<S> Drop for Screen<S> {
    fn drop(&mut self) {
        terminal::restore();
    }
}
