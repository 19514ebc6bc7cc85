use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use heddle_node::settings::KubeletSettings;
use heddle_qos::cgroup::{Mounts, System};
use heddle_skips::skipped;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::followed;

/// Given a kubelet that refuses its first question, then the agent is told nothing until it has answered: that there are
/// no pods would be a guess.
#[tokio::test]
async fn no_pods_are_told_before_the_first_answer() {
    let mounts = match Mounts::find() {
        Ok(mounts) => mounts,
        Err(error) => return skipped(&format!("no control groups: {error}")),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut settings = KubeletSettings::default();
    settings.set_url(url.parse().expect("a URL"));
    let groups = System::new(mounts);
    let (mut pods, answers) = followed(&settings, groups)
        .expect("a group")
        .expect("a kubelet");

    let (refused, _) = listener.accept().await.expect("asked");
    drop(refused);
    let told = timeout(Duration::from_millis(500), pods.recv()).await;
    assert!(told.is_err(), "{told:?} without an answer");
    assert_eq!(answers.failed.load(Relaxed), 1);

    let (mut stream, _) = listener.accept().await.expect("asked again");
    let mut head = [0; 1_024];
    let _request = stream.read(&mut head).await.expect("a request");
    let list = r#"{"kind":"PodList","items":[]}"#;
    let length = list.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{list}");
    stream.write_all(answer.as_bytes()).await.expect("answered");
    let told = timeout(Duration::from_secs(10), pods.recv()).await;
    assert_eq!(told.expect("told"), Some(Vec::new()));
}
