//! Bitcoin's networks and their magic.

/// A Bitcoin network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// The main network.
    Mainnet,
    /// Test network 3.
    Testnet3,
    /// Test network 4 (BIP94).
    Testnet4,
    /// The default signet (BIP325). Custom signets have their own magic.
    Signet,
    /// A private chain for tests (regression test mode).
    Regtest,
}

impl Network {
    /// All networks.
    pub const ALL: [Network; 5] = [
        Network::Mainnet,
        Network::Testnet3,
        Network::Testnet4,
        Network::Signet,
        Network::Regtest,
    ];

    /// Returns the network's magic: the four bytes that begin every v1 message and that BIP324
    /// mixes into its keys, in wire order.
    #[must_use]
    pub const fn magic(self) -> [u8; 4] {
        match self {
            Network::Mainnet => [0xf9, 0xbe, 0xb4, 0xd9],
            Network::Testnet3 => [0x0b, 0x11, 0x09, 0x07],
            Network::Testnet4 => [0x1c, 0x16, 0x3f, 0x28],
            Network::Signet => [0x0a, 0x03, 0xcf, 0x40],
            Network::Regtest => [0xfa, 0xbf, 0xb5, 0xda],
        }
    }

    /// Returns the easiest target that a block of this network may have, in the compact encoding of
    /// the block header ("nBits").
    #[must_use]
    pub const fn easiest_target(self) -> u32 {
        match self {
            Network::Mainnet | Network::Testnet3 | Network::Testnet4 => 0x1d00_ffff,
            Network::Signet => 0x1e03_77ae,
            Network::Regtest => 0x207f_ffff,
        }
    }

    /// Returns the network's name in node software.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Network::Mainnet => "main",
            Network::Testnet3 => "testnet3",
            Network::Testnet4 => "testnet4",
            Network::Signet => "signet",
            Network::Regtest => "regtest",
        }
    }

    /// Returns the network with this magic, if it is one of these.
    #[must_use]
    pub fn from_magic(magic: [u8; 4]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|network| network.magic() == magic)
    }
}
