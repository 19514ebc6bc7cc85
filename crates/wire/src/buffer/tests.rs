use std::io::{IoSlice, IoSliceMut};

use proptest::prelude::*;

use super::{Chain, Full, Pool};

fn bytes_of(chain: &Chain) -> Vec<u8> {
    chain.runs().flatten().copied().collect()
}

#[test]
fn an_empty_chain_holds_nothing() {
    let pool = Pool::new(16, 4);
    let chain = Chain::new();
    assert_eq!(
        (chain.len(), chain.blocks(), chain.front()),
        (0, 0, &b""[..])
    );
    assert_eq!((pool.blocks_in_use(), pool.blocks_free()), (0, 0));
}

#[test]
fn grows_over_blocks_without_copying_and_shrinks_back() {
    let pool = Pool::new(4, 8);
    let mut chain = Chain::new();
    chain.extend_from_slice(&pool, b"abcdefghij").unwrap();
    assert_eq!(pool.blocks_in_use(), 3);
    assert_eq!(chain.front(), b"abcd");
    let first = chain.front().as_ptr();
    chain.extend_from_slice(&pool, b"kl").unwrap();
    assert_eq!(chain.front().as_ptr(), first);
    chain.consume(5);
    assert_eq!((chain.front(), pool.blocks_in_use()), (&b"fgh"[..], 2));
    chain.consume(100);
    assert_eq!(
        (chain.len(), pool.blocks_in_use(), pool.blocks_free()),
        (0, 0, 3)
    );
}

#[test]
fn a_pool_at_its_bound_says_so_and_writes_nothing() {
    let pool = Pool::new(4, 2);
    let mut chain = Chain::new();
    assert_eq!(chain.extend_from_slice(&pool, b"123456789"), Err(Full));
    assert_eq!((chain.len(), pool.blocks_in_use()), (0, 0));
    chain.extend_from_slice(&pool, b"12345678").unwrap();
    assert!(chain.spare(&pool).is_none());
    let mut other = Chain::new();
    assert!(other.spare(&pool).is_none());
    chain.consume(4);
    assert_eq!(other.spare(&pool).map(|room| room.len()), Some(4));
}

#[test]
fn an_idle_connection_gives_its_blocks_back() {
    let pool = Pool::new(8, 4);
    let mut chain = Chain::new();
    assert_eq!(chain.reserve(&pool, 20), 24);
    assert_eq!(pool.blocks_in_use(), 3);
    chain.release_spare();
    assert_eq!((pool.blocks_in_use(), pool.blocks_free()), (0, 3));
    pool.trim(1);
    assert_eq!(pool.blocks_free(), 1);
    pool.set_max_free(0);
    chain.extend_from_slice(&pool, b"x").unwrap();
    chain.consume(1);
    assert_eq!((pool.blocks_in_use(), pool.blocks_free()), (0, 0));
}

#[test]
fn blocks_are_reused_last_in_first_out() {
    let pool = Pool::new(8, 4);
    let mut chain = Chain::new();
    chain.extend_from_slice(&pool, b"first").unwrap();
    let block = chain.front().as_ptr();
    chain.clear();
    chain.extend_from_slice(&pool, b"again").unwrap();
    assert_eq!(chain.front().as_ptr(), block);
}

#[test]
fn splitting_shares_the_block_and_neither_side_writes_into_it() {
    let pool = Pool::new(8, 4);
    let mut tail = Chain::new();
    tail.extend_from_slice(&pool, b"headtail").unwrap();
    tail.consume(0);
    let mut head = tail.split_to(4);
    assert_eq!(
        (bytes_of(&head), bytes_of(&tail)),
        (b"head".to_vec(), b"tail".to_vec())
    );
    assert_eq!(pool.blocks_in_use(), 1, "one block, shared");
    head.extend_from_slice(&pool, b"!").unwrap();
    tail.extend_from_slice(&pool, b"?").unwrap();
    assert_eq!(
        (bytes_of(&head), bytes_of(&tail)),
        (b"head!".to_vec(), b"tail?".to_vec())
    );
    drop(head);
    assert_eq!(pool.blocks_in_use(), 2);
    tail.clear();
    assert_eq!(pool.blocks_in_use(), 0);
}

#[test]
fn a_vectored_read_fills_several_blocks() {
    let pool = Pool::new(4, 8);
    let mut chain = Chain::new();
    chain.extend_from_slice(&pool, b"ab").unwrap();
    assert_eq!(chain.reserve(&pool, 9), 10);
    let mut slots = [(); 8].map(|()| IoSliceMut::new(&mut []));
    let count = chain.spare_slices(&mut slots);
    assert_eq!(
        slots[..count]
            .iter()
            .map(|slot| slot.len())
            .collect::<Vec<_>>(),
        [2, 4, 4]
    );
    for (slot, text) in slots.iter_mut().zip([&b"cd"[..], b"efgh", b"i"]) {
        slot[..text.len()].copy_from_slice(text);
    }
    chain.commit(7);
    assert_eq!(bytes_of(&chain), b"abcdefghi");
    let mut out = [IoSlice::new(&[]); 8];
    assert_eq!(chain.slices(&mut out), 3);
    let mut scratch = Vec::new();
    assert_eq!(chain.contiguous(3, &mut scratch), b"abc");
    assert_eq!(chain.contiguous(9, &mut scratch), b"abcdefghi");
}

#[test]
fn the_pool_outlives_its_last_handle_while_a_chain_needs_it() {
    let mut chain = Chain::new();
    {
        let pool = Pool::new(4, 4);
        chain.extend_from_slice(&pool, b"still here").unwrap();
    }
    assert_eq!(bytes_of(&chain), b"still here");
}

#[derive(Debug, Clone)]
enum Step {
    Extend(usize, Vec<u8>),
    Read(usize, usize, usize),
    Consume(usize, usize),
    Split(usize, usize),
    Move(usize, usize, usize),
    ReleaseSpare(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let chain = 0..3usize;
    prop_oneof![
        (chain.clone(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(at, bytes)| Step::Extend(at, bytes)),
        (chain.clone(), 0..60usize, 0..60usize).prop_map(|(at, want, n)| Step::Read(at, want, n)),
        (chain.clone(), 0..60usize).prop_map(|(at, n)| Step::Consume(at, n)),
        (chain.clone(), 0..60usize).prop_map(|(at, n)| Step::Split(at, n)),
        (chain.clone(), chain.clone(), 0..60usize)
            .prop_map(|(from, to, n)| Step::Move(from, to, n)),
        chain.prop_map(Step::ReleaseSpare),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Three chains over one small pool behave like three vectors under any sequence of operations, and return all
    /// blocks.
    #[test]
    fn chains_behave_as_vectors(block in 1..20usize, steps in prop::collection::vec(step(), 1..60)) {
        let pool = Pool::new(block, 24);
        let mut chains = [Chain::new(), Chain::new(), Chain::new()];
        let mut models: [Vec<u8>; 3] = Default::default();
        let mut fill = 0u8;
        for step in steps {
            match step {
                Step::Extend(at, bytes) => {
                    if chains[at].extend_from_slice(&pool, &bytes).is_ok() {
                        models[at].extend_from_slice(&bytes);
                    }
                }
                Step::Read(at, want, n) => {
                    let n = n.min(chains[at].reserve(&pool, want));
                    let mut slots = [(); 64].map(|()| IoSliceMut::new(&mut []));
                    let count = chains[at].spare_slices(&mut slots);
                    let mut written = 0;
                    for byte in slots[..count].iter_mut().flat_map(|slot| slot.iter_mut()).take(n) {
                        fill = fill.wrapping_add(1);
                        *byte = fill;
                        models[at].push(fill);
                        written += 1;
                    }
                    chains[at].commit(written);
                }
                Step::Consume(at, n) => {
                    chains[at].consume(n);
                    let n = n.min(models[at].len());
                    models[at].drain(..n);
                }
                Step::Split(at, n) => {
                    let head = chains[at].split_to(n);
                    let n = n.min(models[at].len());
                    prop_assert_eq!(bytes_of(&head), models[at].drain(..n).collect::<Vec<_>>());
                }
                Step::Move(from, to, n) => {
                    if from != to {
                        let mut moved = std::mem::take(&mut chains[from]);
                        moved.move_to(n, &mut chains[to]);
                        chains[from] = moved;
                        let n = n.min(models[from].len());
                        let moved: Vec<u8> = models[from].drain(..n).collect();
                        models[to].extend(moved);
                    }
                }
                Step::ReleaseSpare(at) => chains[at].release_spare(),
            }
            for (chain, model) in chains.iter().zip(&models) {
                prop_assert_eq!(&bytes_of(chain), model);
                prop_assert_eq!(chain.len(), model.len());
                prop_assert_eq!(chain.front().is_empty(), model.is_empty());
                let mut scratch = Vec::new();
                prop_assert_eq!(chain.contiguous(usize::MAX, &mut scratch), &model[..]);
            }
            prop_assert!(pool.blocks_in_use() <= 24);
        }
        for chain in &mut chains {
            chain.clear();
        }
        prop_assert_eq!(pool.blocks_in_use(), 0);
    }
}

#[test]
fn detached_bytes_need_no_pool() {
    for bytes in [&b""[..], b"a", &[7; 100_000]] {
        let mut chain = Chain::detached(bytes);
        assert_eq!(bytes_of(&chain), bytes);
        assert_eq!(chain.blocks(), usize::from(!bytes.is_empty()));
        // Bytes read later go into a block of the pool.
        let pool = Pool::new(16, 1);
        chain.extend_from_slice(&pool, b"later").unwrap();
        chain.consume(bytes.len());
        assert_eq!((chain.front(), pool.blocks_in_use()), (&b"later"[..], 1));
    }
}
