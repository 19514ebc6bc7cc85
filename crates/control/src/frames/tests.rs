//! Frames and trailers are as gRPC over HTTP/2 defines them.

use heddle_xds::proto::Resource;

use heddle_xds::MAX_DISCOVERY_RESPONSE_BYTES;
use heddle_xds::proto::{DiscoveryRequest, DiscoveryResponse};

use super::*;

fn response(bytes: usize) -> DiscoveryResponse {
    DiscoveryResponse {
        nonce: "7".to_owned(),
        resources: vec![Resource {
            name: "shop/cart".to_owned(),
            version: "1".to_owned(),
            content: vec![b'x'; bytes].into(),
        }],
        ..DiscoveryResponse::default()
    }
}

/// Reads a body as a client does.
async fn read(answers: Answers) -> (Vec<DiscoveryResponse>, Option<Status>) {
    let settings = BufferSettings::default();
    let decoder = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::raw_decoder(settings);
    let most = Some(MAX_DISCOVERY_RESPONSE_BYTES);
    let body = body::Body::new(answers);
    let mut stream = Streaming::new_response(decoder, body, http::StatusCode::OK, None, most);
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, None),
            Err(status) => return (messages, Some(status)),
        }
    }
}

#[tokio::test]
async fn a_client_reads_what_was_sent_and_how_it_ended() {
    let sent = [response(0), response(3), response(1 << 20)];
    for end in [None, Some(Status::permission_denied("denied"))] {
        let (answers, answered) = mpsc::channel(8);
        for message in &sent {
            answers
                .send(frame(message, MAX_DISCOVERY_RESPONSE_BYTES))
                .await
                .unwrap();
        }
        if let Some(status) = &end {
            answers.send(Err(status.clone())).await.unwrap();
        }
        drop(answers);
        let (messages, status) = read(Answers {
            answers: Some(answered),
            _is_there: tokio::sync::oneshot::channel().0,
        })
        .await;
        assert_eq!(messages, sent);
        let told = |status: &Status| (status.code(), status.message().to_owned());
        assert_eq!(status.as_ref().map(told), end.as_ref().map(told));
    }
}

#[test]
fn a_message_that_nodes_would_refuse_is_not_sent() {
    let largest = MAX_DISCOVERY_RESPONSE_BYTES - response(0).encoded_len() - 16;
    assert!(frame(&response(largest), MAX_DISCOVERY_RESPONSE_BYTES).is_ok());
    let status = frame(
        &response(MAX_DISCOVERY_RESPONSE_BYTES),
        MAX_DISCOVERY_RESPONSE_BYTES,
    )
    .unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange);
}
