//! Words for the variants of an enum, such as the labels of metrics.

/// `name`, and `NAMES`, from one list: a variant that is not in it does not compile.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($variant:pat => $name:literal,)* }) => {
        impl $type {
            /// All that [`Self::name`] can be.
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
