//! Names of enum variants, used as metric labels and in JSON.

/// Generates `name` and `NAMES` from one list. A missing variant does not compile.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($variant:pat => $name:literal,)* }) => {
        impl $type {
            /// All values that [`Self::name`] returns.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            $(#[$doc])*
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($variant => $name,)*
                }
            }
        }
    };
}
