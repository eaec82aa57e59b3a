//! Tests of the guarantees of every call: panics, NULL, error messages. `tests/c/test.c` tests the rest.

use crate::handle::{Guarded, call, change, free, give, list, look, place, read};
use crate::status::packetlane_status::*;
use crate::status::{Error, packetlane_error_message, packetlane_status_message};
use crate::*;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr;
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};

fn words(string: *const c_char) -> &'static str {
    // SAFETY: a string of this crate, valid until the next error of this thread.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap()
}

struct number(Guarded<u32>);
handle!(number: u32);

fn make(value: u32) -> *mut number {
    let mut handle = MaybeUninit::uninit();
    give(&mut handle, value);
    // SAFETY: just written.
    unsafe { handle.assume_init() }
}

#[test]
fn a_panic_poisons_what_the_call_could_change_and_nothing_else() {
    let (changed, other) = (make(1), make(2));
    let status = call(|used| {
        // SAFETY: both are handles that nothing else uses.
        let (_changed, other) =
            unsafe { (change!(used, changed)?, look::<number>(other, "other")?) };
        panic!("on purpose, with {other}")
    });
    assert_eq!(status, PACKETLANE_PANIC);
    assert_eq!(words(packetlane_error_message()), "on purpose, with 2");
    // SAFETY: as above.
    unsafe {
        assert_eq!(
            call(|used| change!(used, changed).map(drop)),
            PACKETLANE_POISONED
        );
        assert_eq!(
            look::<number>(changed, "changed").unwrap_err().status(),
            PACKETLANE_POISONED
        );
        assert_eq!(read(7, || Ok(*look::<number>(changed, "changed")?)), 7);
        assert_eq!(*look::<number>(other, "other").unwrap(), 2);
        free(changed);
        free(other);
        free(ptr::null_mut::<number>());
    }
}

#[test]
fn every_kind_of_panic_stays_inside() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("again")
        }
    }
    let status = call(|_| std::panic::panic_any(PanicsOnDrop));
    assert_eq!(status, PACKETLANE_PANIC);
    let text = "long".repeat(1000);
    assert_eq!(call(|_| panic!("{text}")), PACKETLANE_PANIC);
    assert_eq!(words(packetlane_error_message()), &text[..255]);
    assert_eq!(read(3, || panic!("in one that reads")), 3);
    assert_eq!(words(packetlane_error_message()), "in one that reads");
}

#[test]
fn null_and_lengths() {
    // SAFETY: no pointer is read except NULL, which is checked.
    unsafe {
        let null = |error: Error| assert_eq!(error.status(), PACKETLANE_NULL_ARGUMENT);
        let changed = call(|used| change(used, ptr::null_mut::<number>(), "session").map(drop));
        assert_eq!(changed, PACKETLANE_NULL_ARGUMENT);
        assert_eq!(
            words(packetlane_error_message()),
            "argument `session` is NULL"
        );
        null(look(ptr::null::<number>(), "").unwrap_err());
        null(place(ptr::null_mut::<u8>(), "").unwrap_err());
        null(list(ptr::null::<u8>(), 1, "").unwrap_err());
        assert!(list(ptr::null::<u8>(), 0, "").unwrap().is_empty());
        let long = list(ptr::dangling::<u64>(), usize::MAX / 8, "").unwrap_err();
        assert_eq!(long.status(), PACKETLANE_WRONG_LENGTH);
    }
}

#[test]
fn a_thread_has_its_own_last_error() {
    assert_eq!(Error::from(PACKETLANE_BAD_TAG).status(), PACKETLANE_BAD_TAG);
    std::thread::spawn(|| assert_eq!(words(packetlane_error_message()), ""))
        .join()
        .unwrap();
    let message = words(packetlane_error_message());
    assert_eq!(
        message,
        words(packetlane_status_message(PACKETLANE_BAD_TAG as i32))
    );
}

/// A slot survives the conversion to C and back.
#[test]
fn slots_come_back_as_they_went() {
    use packetlane::{BatchKey, Engine, PacketLayout, SealBatch, TAG_LEN};
    let (mut batch, mut key) = (SealBatch::new(), BatchKey::default());
    batch.ensure_key(&mut key, &[7; 32]);
    let layout = PacketLayout {
        key,
        nonce: [0; 12],
        aad: 0..0,
        text: 0..5,
    };
    let (slot, _) = batch.add_to_seal(5 + TAG_LEN, layout).unwrap();
    let there = packetlane_slot::from(slot.clone());
    assert_eq!(*there.slot(), slot);
    Engine::portable().seal(&mut batch);
    assert!(batch.wire(there.slot()).is_ok());
}

#[test]
fn a_session_that_panicked_is_refused() {
    let mut session = ptr::null_mut();
    // SAFETY: handles of this crate that nothing else uses, and valid pointers.
    unsafe {
        let mut engine = ptr::null_mut();
        assert_eq!(packetlane_engine_detect(&raw mut engine), PACKETLANE_OK);
        let mut config = MaybeUninit::uninit();
        let size = size_of::<packetlane_handshake_config>();
        let made = packetlane_handshake_config_init(config.as_mut_ptr(), size);
        assert_eq!(made, PACKETLANE_OK);
        (*config.as_mut_ptr()).magic = Network::Regtest.magic();
        let (mut a, mut b) = (ptr::null_mut(), ptr::null_mut());
        let config = config.as_ptr();
        assert_eq!(
            packetlane_handshake_initiator(engine, config, &raw mut a),
            PACKETLANE_OK
        );
        assert_eq!(
            packetlane_handshake_responder(engine, config, &raw mut b),
            PACKETLANE_OK
        );
        for (from, to) in [(a, b), (b, a)] {
            let (mut bytes, mut len) = (ptr::null(), 0);
            let mut progress = packetlane_progress::PACKETLANE_WAITING;
            let output = packetlane_handshake_output(from, &raw mut bytes, &raw mut len);
            assert_eq!(output, PACKETLANE_OK);
            let received = packetlane_handshake_receive(to, bytes, len, &raw mut progress);
            assert_eq!(received, PACKETLANE_OK);
        }
        assert_eq!(
            packetlane_handshake_take_session(a, &raw mut session),
            PACKETLANE_OK
        );
        assert_eq!(packetlane_test_panic(session), PACKETLANE_PANIC);
        let mut id = [0; 32];
        let status = packetlane_session_id(session, id.as_mut_ptr());
        assert_eq!((status, id), (PACKETLANE_POISONED, [0; 32]));
        packetlane_session_free(session);
        packetlane_handshake_free(a);
        packetlane_handshake_free(b);
        packetlane_engine_free(engine);
    }
}

/// The status, the bytes taken, the number of messages dropped, and the next v1 message if any.
type Decoded = (packetlane_status, usize, u64, Option<(String, Vec<u8>)>);

fn decode_by_c(magic: [u8; 4], bytes: &[u8]) -> Decoded {
    let mut message = MaybeUninit::<packetlane_message>::uninit();
    let (mut taken, mut ignored) = (0, 0);
    // SAFETY: valid pointers, and `message` is read only if it was written.
    unsafe {
        let status = packetlane_v1_decode(
            magic.as_ptr(),
            bytes.as_ptr(),
            bytes.len(),
            message.as_mut_ptr(),
            &raw mut taken,
            &raw mut ignored,
        );
        let message = (status == PACKETLANE_OK).then(|| {
            let message = message.assume_init();
            let name = words(message.message_type.as_ptr()).to_owned();
            let payload = core::slice::from_raw_parts(message.payload, message.payload_len);
            (name, payload.to_vec())
        });
        (status, taken, ignored, message)
    }
}

fn decode_by_rust(magic: [u8; 4], bytes: &[u8]) -> Decoded {
    let (mut decoder, mut rest) = (v1::Decoder::new(magic), bytes);
    let next = decoder.next(&mut rest);
    let (taken, ignored) = (bytes.len() - rest.len(), decoder.ignored().messages);
    match next {
        Ok(Some(message)) => {
            let name = message.message_type.name().to_owned();
            let message = Some((name, message.payload.to_vec()));
            (PACKETLANE_OK, taken, ignored, message)
        }
        Ok(None) => (PACKETLANE_END, taken, ignored, None),
        Err(v1::Error::Magic { .. }) => (PACKETLANE_V1_OTHER_NETWORK, 0, 0, None),
        Err(v1::Error::TooLong { .. }) => (PACKETLANE_RECEIVE_LIMIT, 0, 0, None),
        Err(error) => panic!("{error}"),
    }
}

/// Random messages, some damaged or truncated, are encoded and decoded like in Rust.
#[test]
fn v1_is_the_librarys() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let mut outcomes = std::collections::BTreeMap::new();
    for _ in 0..20_000 {
        let magic = Network::ALL[random(Network::ALL.len())].magic();
        let mut wire = Vec::new();
        for _ in 0..1 + random(4) {
            let name: Vec<u8> = (0..1 + random(12))
                .map(|_| 0x21 + random(0x5e) as u8)
                .collect();
            let payload: Vec<u8> = (0..random(70)).map(|_| random(256) as u8).collect();
            let mut expected = Vec::new();
            v1::Message::new(MessageType::new(&name).unwrap(), &payload)
                .encode(magic, &mut expected);
            let mut header = [0; PACKETLANE_V1_HEADER_LEN];
            let name = std::ffi::CString::new(name).unwrap();
            // SAFETY: valid pointers.
            let status = unsafe {
                packetlane_v1_encode_header(
                    magic.as_ptr(),
                    name.as_ptr(),
                    payload.as_ptr(),
                    payload.len(),
                    header.as_mut_ptr(),
                )
            };
            assert_eq!(status, PACKETLANE_OK);
            assert_eq!([&header[..], &payload].concat(), expected);
            wire.extend(expected);
        }
        if random(2) == 0 {
            let place = random(wire.len());
            wire[place] ^= 1 << random(8);
        }
        wire.truncate(wire.len() - random(3) * random(wire.len()) / 2);
        let mut rest = &wire[..];
        loop {
            let decoded = decode_by_c(magic, rest);
            assert_eq!(decoded, decode_by_rust(magic, rest));
            let (status, taken, ignored, _) = decoded;
            *outcomes
                .entry((format!("{status:?}"), ignored > 0))
                .or_insert(0) += 1;
            rest = &rest[taken..];
            if status != PACKETLANE_OK {
                break;
            }
        }
    }
    // All outcomes are frequent: a message and the end, each with and without dropped messages, and both errors.
    assert_eq!(outcomes.len(), 6, "{outcomes:?}");
    assert!(outcomes.values().all(|&count| count > 100), "{outcomes:?}");
}
