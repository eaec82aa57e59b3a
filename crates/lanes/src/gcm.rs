//! AES-GCM over a list of jobs: checks them, and hands them to the kernels that go with a
//! backend.

use crate::isa::AesSet;
use crate::job::{Job, Nonce, Outcome, TAG_LEN, Work, verdict_of};
use crate::kernels::aes::gcm::Detached;
use crate::kernels::aes::key::{Block, GcmKey};

/// # Panics
///
/// If a job lies outside a buffer of `len` bytes or names a key that is not there.
fn check(len: usize, keys: &[&GcmKey], jobs: &[Job]) {
    let (mut text_end, mut aad_end, mut key) = (0, 0, 0);
    for job in jobs {
        text_end = text_end.max(u64::from(job.text) + u64::from(job.text_len));
        aad_end = aad_end.max(u64::from(job.aad) + u64::from(job.aad_len));
        key = key.max(job.key);
    }
    let end = aad_end.max(text_end + TAG_LEN as u64);
    let inside = jobs.is_empty() || end <= len as u64 && (key as usize) < keys.len();
    assert!(inside, "a job outside its buffer, or without its key");
}

/// See [`crate::Backend::gcm_seal`].
#[inline]
pub(crate) fn seal(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    let Work {
        bytes,
        secrets: keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    // SAFETY: just checked.
    unsafe { set.seal(bytes, Detached::default(), keys, jobs) };
    outcomes.fill(Outcome::Sealed);
}

/// The job of a packet that is alone, whose text begins its buffer.
///
/// # Panics
///
/// If it is longer than a job can say.
#[inline]
fn alone(nonce: &Nonce, aad: &[u8], text_len: usize) -> Job {
    let len = |len: usize| u32::try_from(len).expect("no packet is so long");
    Job {
        text_len: len(text_len),
        aad_len: len(aad.len()),
        nonce: *nonce,
        ..Job::default()
    }
}

/// See [`crate::Backend::gcm_seal_detached`].
#[inline]
pub(crate) fn seal_detached(
    set: AesSet,
    key: &GcmKey,
    nonce: &Nonce,
    aad: &[u8],
    text: &mut [u8],
) -> Block {
    let job = alone(nonce, aad, text.len());
    let mut tag = [0; 16];
    let detached = Detached {
        aad: Some(aad),
        tag: Some(&mut tag),
    };
    // SAFETY: the job is all of the text and of the AAD.
    unsafe { set.seal(text, detached, &[key], &[job]) };
    tag
}

/// See [`crate::Backend::gcm_open_detached`].
#[inline]
pub(crate) fn open_detached(
    set: AesSet,
    key: &GcmKey,
    nonce: &Nonce,
    aad: &[u8],
    text_and_tag: &mut [u8],
) -> Outcome {
    let Some(text_len) = text_and_tag.len().checked_sub(TAG_LEN) else {
        return Outcome::BadTag;
    };
    let job = alone(nonce, aad, text_len);
    let detached = Detached {
        aad: Some(aad),
        tag: None,
    };
    let mut difference = [0];
    // SAFETY: the job is all of the text with the tag behind it, and of the AAD.
    unsafe { set.open(text_and_tag, detached, &[key], &[job], &mut difference) };
    verdict_of(difference[0])
}

/// See [`crate::Backend::gcm_open`].
#[inline]
pub(crate) fn open(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    /// How many are opened at a time.
    const SOME: usize = 64;
    let Work {
        bytes,
        secrets: keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    for (jobs, outcomes) in jobs.chunks(SOME).zip(outcomes.chunks_mut(SOME)) {
        let differences = &mut [0; SOME][..jobs.len()];
        // SAFETY: just checked.
        unsafe { set.open(bytes, Detached::default(), keys, jobs, differences) };
        // All at once, as they nearly always are.
        let any = differences
            .iter()
            .fold(0, |any, difference| any | *difference);
        if verdict_of(any) == Outcome::Authentic {
            outcomes.fill(Outcome::Authentic);
            continue;
        }
        for (outcome, difference) in outcomes.iter_mut().zip(differences) {
            *outcome = verdict_of(*difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::aes::key::{AesKey, POWERS};

    /// Where the text begins: room for AAD longer than there are powers for.
    const TEXT: usize = 1000;

    const SIZE: usize = TEXT + 1800;

    /// A packet of every length in either direction, masks and keys, by the instructions
    /// of each table: those that no backend takes on this CPU are run nowhere else.
    #[test]
    fn every_table_does_what_the_portable_one_does() {
        let (_, portable) = AesSet::first(AesSet::PORTABLE);
        let sets = (0..AesSet::ALL.len()).filter_map(|place| {
            let (found, set) = AesSet::first(place);
            (found == place).then_some(set)
        });
        for set in sets {
            let raw: [u8; 32] = core::array::from_fn(|i| (i * 29) as u8);
            let (short, long) = (GcmKey::aes128(&[9; 16]), GcmKey::aes256(&raw));
            for key in [&short, &long] {
                for set in [set, portable] {
                    let mut keys = [[0; 16]; 15];
                    let raw = if key.cipher.rounds() == 10 {
                        &[9; 16][..]
                    } else {
                        &raw
                    };
                    set.expand(raw, &mut keys);
                    assert_eq!(keys, key.cipher.keys);
                    let mut powers = [0; POWERS + 3];
                    set.powers(&key.cipher, &mut powers);
                    assert_eq!(powers, key.powers);
                }
            }
            for len in 0..1700_usize {
                let job = Job {
                    text: TEXT as u32,
                    text_len: len as u32,
                    aad: 1,
                    aad_len: len as u32 * 7 % 999,
                    key: len as u32 % 2,
                    nonce: [len as u8; 12],
                    ..Job::default()
                };
                let plain: [u8; SIZE] = core::array::from_fn(|i| (i * i / 7 + len) as u8);
                let (mut ours, mut theirs) = (plain, plain);
                let outcome = &mut [Outcome::Pending];
                seal(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                seal(
                    portable,
                    Work {
                        bytes: &mut theirs,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(ours, theirs, "{len}");
                let sealed = ours;
                open(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(outcome, &[Outcome::Authentic]);
                assert_eq!(ours[..TEXT + len], plain[..TEXT + len], "{len}");
                ours = sealed;
                ours[TEXT + len + len % 16] ^= 0x10;
                open(
                    set,
                    Work {
                        bytes: &mut ours,
                        secrets: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                assert_eq!(outcome, &[Outcome::BadTag]);
                assert_eq!(ours[..TEXT + len], sealed[..TEXT + len], "{len}");
            }
            let keys = [
                AesKey::aes128(&[3; 16]),
                AesKey::aes128(&[4; 16]),
                AesKey::aes256(&raw),
            ];
            let keys = [&keys[0], &keys[1], &keys[2]];
            for count in 0..70 {
                for some in 1..=3 {
                    let bytes: [u8; 100] = core::array::from_fn(|i| i as u8);
                    let samples: [_; 70] =
                        core::array::from_fn(|i| (i as u32 / 5 % some, i as u32 * 6 / 5));
                    let (mut ours, mut theirs) = ([0; 70], [0; 70]);
                    set.masks(&bytes, &keys, &samples[..count], &mut ours);
                    portable.masks(&bytes, &keys, &samples[..count], &mut theirs);
                    assert_eq!(ours, theirs);
                }
            }
        }
    }
}
