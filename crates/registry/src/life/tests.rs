use super::*;

fn away() -> Trouble {
    Trouble::Away("connection refused".to_owned())
}

#[test]
fn each_state_is_said_once() {
    let mut life = Life::new();
    assert!(matches!(life.failed(&away()), Ok(Some(News::Away(_)))));
    assert_eq!(life.failed(&away()), Ok(None));
    assert_eq!(life.registered(Written::Anew), Some(News::Registered));
    assert_eq!(life.registered(Written::Kept), None);
    assert!(matches!(life.failed(&away()), Ok(Some(News::Away(_)))));
    assert_eq!(life.failed(&Trouble::late()), Ok(None));
    assert!(
        matches!(life.registered(Written::Kept), Some(News::Again(why)) if why.contains("had not ended"))
    );
    assert_eq!(life.registered(Written::Kept), None);
    assert_eq!(life.taken(), Some(News::Taken));
    assert_eq!(life.taken(), None);
    assert!(matches!(
        life.registered(Written::Anew),
        Some(News::Again(_))
    ));
}

#[test]
fn a_lease_that_has_ended_is_said_when_it_is_registered_again() {
    let mut life = Life::new();
    // A lease that ended before the first registration is no news.
    life.lease_ended();
    assert_eq!(life.registered(Written::Anew), Some(News::Registered));
    life.lease_ended();
    assert_eq!(
        life.registered(Written::Anew),
        Some(News::Again("its lease had ended"))
    );
    assert_eq!(life.registered(Written::Kept), None);
    // An operator removed the key, and the lease is still alive.
    assert_eq!(
        life.registered(Written::Anew),
        Some(News::Again("its key was gone"))
    );
}

#[test]
fn what_never_worked_and_will_not_is_over_at_once() {
    let ours = Trouble::Ours("etcdserver: permission denied".to_owned());
    let mut life = Life::new();
    assert_eq!(
        life.failed(&ours),
        Err("etcdserver: permission denied".to_owned())
    );
    // A registration that has worked retries without limit: the operator may restore the permission.
    let mut life = Life::new();
    life.registered(Written::Anew);
    assert!(matches!(life.failed(&ours), Ok(Some(News::Away(_)))));
}

#[test]
fn only_an_earlier_run_is_taken_over() {
    let mut life = Life::new();
    assert!(life.may_take_over());
    assert_eq!(life.registered(Written::Over), Some(News::Registered));
    assert!(!life.may_take_over());
}
