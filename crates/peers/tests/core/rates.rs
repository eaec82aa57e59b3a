//! Message rates for tests: those of a listening node, per second.

use packetlane::bitcoin::message::MessageType;

/// What a node receives: type, messages per second, mean length of the payload in bytes.
const LISTENING: [(&str, f64, f64); 11] = [
    ("inv", 4.7, 431.0),
    ("tx", 2.85, 743.0),
    ("getdata", 0.96, 108.0),
    ("ping", 0.42, 8.0),
    ("addr", 0.11, 771.0),
    ("addrv2", 0.076, 354.0),
    ("getheaders", 0.022, 963.0),
    ("headers", 0.016, 10_088.0),
    ("notfound", 0.0063, 47.0),
    ("cmpctblock", 0.0025, 13_322.0),
    ("getblocktxn", 0.0003, 40.0),
];

/// The types of [`LISTENING`] with their rates multiplied by `factor`.
pub(crate) fn listening(factor: f64) -> impl Iterator<Item = (MessageType, f64, f64)> {
    LISTENING.iter().map(move |&(name, per_second, length)| {
        let message_type = MessageType::literal(name);
        (message_type, factor * per_second, length)
    })
}
