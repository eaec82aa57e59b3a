//! The AEAD ChaCha20-Poly1305: ours, and libraries that seal one packet per call.

use super::ours::Ours;
use packetlane::{Key, Nonce, TAG_LEN};

/// An AEAD library that processes one packet per call.
pub(crate) trait Library {
    /// The name in the tables.
    const NAME: &'static str;
    /// A key, prepared before the first packet.
    type Prepared;
    /// Prepares a key.
    fn prepare(key: &Key) -> Self::Prepared;
    /// Encrypts `text` and returns the tag.
    fn seal(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];
    /// Decrypts the text if the tag is right, and returns whether it is.
    fn open(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text_and_tag: &mut [u8]) -> bool;
}

/// `ring`.
pub(crate) struct Ring;

/// `aws-lc-rs`, which has the same interface.
#[cfg(feature = "rivals")]
pub(crate) struct AwsLcRs;

macro_rules! like_ring {
    ($library:ident, $name:literal, $($path:ident)::+) => {
        impl Library for $library {
            const NAME: &'static str = $name;
            type Prepared = $($path)::+::LessSafeKey;

            fn prepare(key: &Key) -> Self::Prepared {
                use $($path)::+::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
                LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes"))
            }

            fn seal(
                key: &mut Self::Prepared,
                nonce: &Nonce,
                aad: &[u8],
                text: &mut [u8],
            ) -> [u8; TAG_LEN] {
                use $($path)::+::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
                tag.expect("a short text").as_ref().try_into().expect("16 bytes")
            }

            fn open(
                key: &mut Self::Prepared,
                nonce: &Nonce,
                aad: &[u8],
                text_and_tag: &mut [u8],
            ) -> bool {
                use $($path)::+::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_in_place(nonce, Aad::from(aad), text_and_tag).is_ok()
            }
        }
    };
}

like_ring!(Ring, "ring", ring::aead);
#[cfg(feature = "rivals")]
like_ring!(AwsLcRs, "aws-lc-rs", aws_lc_rs::aead);

/// RustCrypto's `chacha20poly1305`, with default features.
pub(crate) struct RustCrypto;

impl Library for RustCrypto {
    const NAME: &'static str = "rustcrypto";
    type Prepared = chacha20poly1305::ChaCha20Poly1305;

    fn prepare(key: &Key) -> Self::Prepared {
        use chacha20poly1305::KeyInit;
        Self::Prepared::new(key.into())
    }

    fn seal(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        use chacha20poly1305::AeadInOut;
        let tag = key.encrypt_inout_detached(nonce.into(), aad, text.into());
        tag.expect("a short text").into()
    }

    fn open(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text_and_tag: &mut [u8]) -> bool {
        use chacha20poly1305::AeadInOut;
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        let tag: [u8; TAG_LEN] = (&*tag).try_into().expect("16 bytes");
        key.decrypt_inout_detached(nonce.into(), aad, text.into(), &tag.into())
            .is_ok()
    }
}

/// OpenSSL through EVP, with a context for each key and direction.
#[cfg(feature = "openssl")]
pub(crate) struct OpenSsl;

#[cfg(feature = "openssl")]
impl Library for OpenSsl {
    const NAME: &'static str = "openssl";
    type Prepared = [openssl::cipher_ctx::CipherCtx; 2];

    fn prepare(key: &Key) -> Self::Prepared {
        use openssl::{cipher::Cipher, cipher_ctx::CipherCtx};
        let cipher = Some(Cipher::chacha20_poly1305());
        let mut contexts = [(); 2].map(|()| CipherCtx::new().expect("memory"));
        contexts[0]
            .encrypt_init(cipher, Some(key), None)
            .expect("32 bytes");
        contexts[1]
            .decrypt_init(cipher, Some(key), None)
            .expect("32 bytes");
        contexts
    }

    fn seal(
        [context, _]: &mut Self::Prepared,
        nonce: &Nonce,
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        context
            .encrypt_init(None, None, Some(nonce))
            .expect("12 bytes");
        if !aad.is_empty() {
            context.cipher_update(aad, None).expect("AAD");
        }
        let len = text.len();
        context
            .cipher_update_inplace(text, len)
            .expect("a stream cipher");
        context
            .cipher_final(&mut [])
            .expect("the end of a stream cipher");
        let mut tag = [0; TAG_LEN];
        context.tag(&mut tag).expect("16 bytes");
        tag
    }

    fn open(
        [_, context]: &mut Self::Prepared,
        nonce: &Nonce,
        aad: &[u8],
        text_and_tag: &mut [u8],
    ) -> bool {
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        context
            .decrypt_init(None, None, Some(nonce))
            .expect("12 bytes");
        context.set_tag(tag).expect("16 bytes");
        if !aad.is_empty() {
            context.cipher_update(aad, None).expect("AAD");
        }
        let len = text.len();
        context
            .cipher_update_inplace(text, len)
            .expect("a stream cipher");
        context.cipher_final(&mut []).is_ok()
    }
}

/// A bare AEAD with a prepared key, without AAD.
pub(crate) trait Bare {
    /// The name in the tables.
    fn name(&self) -> &str;
    /// What it runs on. Empty if unknown.
    fn backend(&self) -> &'static str;
    /// Seals all except the last 16 bytes, into which it writes the tag.
    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]);
    /// Opens, and returns whether the tag was right.
    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool;
}

struct OurBare(Ours, Key);

impl Bare for OurBare {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn backend(&self) -> &'static str {
        self.0.backend()
    }

    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) {
        let text = 0..text_and_tag.len() - TAG_LEN;
        self.0
            .engine
            .seal_single(&self.1, *nonce, text_and_tag, 0..0, text);
    }

    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool {
        let text = 0..text_and_tag.len() - TAG_LEN;
        let engine = self.0.engine;
        engine.open_single(&self.1, *nonce, text_and_tag, 0..0, text)
    }
}

struct LibraryBare<L: Library>(L::Prepared);

impl<L: Library> Bare for LibraryBare<L> {
    fn name(&self) -> &str {
        L::NAME
    }

    fn backend(&self) -> &'static str {
        ""
    }

    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) {
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        tag.copy_from_slice(&L::seal(&mut self.0, nonce, &[], text));
    }

    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool {
        L::open(&mut self.0, nonce, &[], text_and_tag)
    }
}

/// All bare AEADs with `key`, ours first.
#[must_use]
pub(crate) fn bare_aeads(ours: &[Ours], key: &Key) -> Vec<Box<dyn Bare>> {
    let ours = ours
        .iter()
        .map(|ours| -> Box<dyn Bare> { Box::new(OurBare(ours.clone(), *key)) });
    let libraries: Vec<Box<dyn Bare>> = vec![
        Box::new(LibraryBare::<Ring>(Ring::prepare(key))),
        #[cfg(feature = "rivals")]
        Box::new(LibraryBare::<AwsLcRs>(AwsLcRs::prepare(key))),
        Box::new(LibraryBare::<RustCrypto>(RustCrypto::prepare(key))),
        #[cfg(feature = "openssl")]
        Box::new(LibraryBare::<OpenSsl>(OpenSsl::prepare(key))),
    ];
    ours.chain(libraries).collect()
}
