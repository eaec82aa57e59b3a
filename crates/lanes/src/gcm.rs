//! AES-GCM over a list of jobs: checks the jobs and calls the kernels of a backend.

use crate::isa::AesSet;
use crate::job::{Job, Nonce, Outcome, TAG_LEN, Work, verdict_of};
use crate::kernels::aes::gcm::Detached;
use crate::kernels::aes::key::{Block, GcmKey};
use arrayvec::ArrayVec;

/// Checks that all jobs lie in a buffer of `len` bytes and that their keys are in the list, as the
/// kernels require.
///
/// # Panics
///
/// If a job lies outside the buffer or its key is not in the list.
fn check(len: usize, keys: &[&GcmKey], jobs: &[Job]) {
    let (mut text_end, mut aad_end, mut key) = (0, 0, 0);
    for job in jobs {
        text_end = text_end.max(u64::from(job.text) + u64::from(job.text_len));
        aad_end = aad_end.max(u64::from(job.aad) + u64::from(job.aad_len));
        key = key.max(job.key);
    }
    let end = aad_end.max(text_end + TAG_LEN as u64);
    let inside = jobs.is_empty() || end <= len as u64 && key < keys.len();
    assert!(
        inside,
        "a job lies outside its buffer or its key is not in the list"
    );
}

/// See [`crate::Kernels::gcm_seal`].
#[inline]
pub(crate) fn seal(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    let Work {
        bytes,
        keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    // SAFETY: `check` has checked that the jobs lie in `bytes` and their keys in the list.
    unsafe { set.seal(bytes, Detached::default(), keys, jobs) };
    fill(outcomes, Outcome::Sealed);
}

/// Writes the same outcome for all jobs.
#[inline(always)]
fn fill(outcomes: &mut [Outcome], with: Outcome) {
    // Writing a single outcome is faster than calling `memset`.
    match outcomes {
        [outcome] => *outcome = with,
        outcomes => outcomes.fill(with),
    }
}

/// Returns the job of a single packet whose text is at the start of its buffer.
///
/// # Panics
///
/// If text or AAD has 2^32 bytes or more.
#[inline]
fn single_job(nonce: &Nonce, aad: &[u8], text_len: usize) -> Job {
    let len = |len: usize| u32::try_from(len).expect("text and AAD are shorter than 2^32 bytes");
    Job {
        text_len: len(text_len),
        aad_len: len(aad.len()),
        nonce: *nonce,
        ..Job::default()
    }
}

/// See [`crate::Kernels::gcm_seal_detached`].
#[inline]
pub(crate) fn seal_detached(
    set: AesSet,
    key: &GcmKey,
    nonce: &Nonce,
    aad: &[u8],
    text: &mut [u8],
) -> Block {
    let job = single_job(nonce, aad, text.len());
    let mut tag = [0; 16];
    let detached = Detached {
        aad: Some(aad),
        tag: Some(&mut tag),
    };
    // SAFETY: the job is all of the text and of the detached AAD, which both begin at offset 0.
    // The tag is written to the detached one. The only key is at index 0.
    unsafe { set.seal(text, detached, &[key], &[job]) };
    tag
}

/// See [`crate::Kernels::gcm_open_detached`].
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
    let job = single_job(nonce, aad, text_len);
    let detached = Detached {
        aad: Some(aad),
        tag: None,
    };
    let mut difference = [0];
    // SAFETY: the job is all of the text, with the tag after it, and of the detached AAD, which
    // both begin at offset 0. The only key is at index 0.
    unsafe { set.open(text_and_tag, detached, &[key], &[job], &mut difference) };
    verdict_of(difference[0])
}

/// See [`crate::Kernels::gcm_open`].
#[inline]
pub(crate) fn open(set: AesSet, work: Work<'_, &[&GcmKey]>) {
    /// How many packets one call of the kernel opens.
    const CHUNK: usize = 64;
    let Work {
        bytes,
        keys,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes.len(), keys, jobs);
    // A single packet first, before anything is set up for a list.
    if let [outcome] = outcomes {
        let mut difference = [0];
        // SAFETY: `check` has checked that the jobs lie in `bytes` and their keys in the list.
        unsafe { set.open(bytes, Detached::default(), keys, jobs, &mut difference) };
        *outcome = verdict_of(difference[0]);
        return;
    }
    for (jobs, outcomes) in jobs.chunks(CHUNK).zip(outcomes.chunks_mut(CHUNK)) {
        // No initialised array: filling it takes as long as a short packet.
        let mut differences = ArrayVec::<u64, CHUNK>::new();
        differences.extend(jobs.iter().map(|_| 0));
        // SAFETY: `check` has checked that the jobs lie in `bytes` and their keys in the list.
        unsafe { set.open(bytes, Detached::default(), keys, jobs, &mut differences) };
        // Usually all packets are authentic, and one check is enough.
        let any = differences
            .iter()
            .fold(0, |any, difference| any | *difference);
        if verdict_of(any) == Outcome::Authentic {
            fill(outcomes, Outcome::Authentic);
            continue;
        }
        for (outcome, difference) in outcomes.iter_mut().zip(&differences) {
            *outcome = verdict_of(*difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::aes::key::{AesKey, POWERS};

    /// Start of the text: after AAD that is longer than the stored powers of the key cover.
    const TEXT: usize = 1000;

    const SIZE: usize = TEXT + 9000;

    /// Keys, packets of every length sealed and opened, and masks, with every table that this CPU
    /// can run. Tables that no backend chooses on this CPU are tested only here.
    #[test]
    fn every_table_matches_bitsliced() {
        let (_, portable) = AesSet::first(AesSet::PORTABLE);
        let sets = (0..AesSet::ALL.len()).filter_map(|index| {
            let (found, set) = AesSet::first(index);
            (found == index).then_some(set)
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
            // The last ones have counters of more than a byte.
            for len in (0..1700_usize).chain([4048, 4100, 4352, 8191]) {
                let job = Job {
                    text: TEXT as u32,
                    text_len: len as u32,
                    aad: 1,
                    aad_len: len as u32 * 7 % 999,
                    key: (len / 16 + len) % 2,
                    nonce: [len as u8; 12],
                };
                let plain: [u8; SIZE] = core::array::from_fn(|i| (i * i / 7 + len) as u8);
                let (mut ours, mut theirs) = (plain, plain);
                let outcome = &mut [Outcome::Pending];
                seal(
                    set,
                    Work {
                        bytes: &mut ours,
                        keys: &[&short, &long],
                        jobs: &[job],
                        outcomes: outcome,
                    },
                );
                seal(
                    portable,
                    Work {
                        bytes: &mut theirs,
                        keys: &[&short, &long],
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
                        keys: &[&short, &long],
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
                        keys: &[&short, &long],
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
                for key_count in 1..=3 {
                    let bytes: [u8; 100] = core::array::from_fn(|i| i as u8);
                    let samples: [_; 70] =
                        core::array::from_fn(|i| (i as u32 / 5 % key_count, i as u32 * 6 / 5));
                    let (mut ours, mut theirs) = ([0; 70], [0; 70]);
                    set.masks(&bytes, &keys, &samples[..count], &mut ours);
                    portable.masks(&bytes, &keys, &samples[..count], &mut theirs);
                    assert_eq!(ours, theirs);
                }
            }
        }
    }
}
