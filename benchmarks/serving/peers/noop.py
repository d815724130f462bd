"""The least that an ASGI server does: read a body, answer a constant as long as ours."""

import json

ANSWER = json.dumps({"predictions": [{"labels": ["label"] * 5, "scores": [0.12345678] * 5}]})
BODY = ANSWER.ljust(330).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


async def app(scope, receive, send):  # noqa: ANN001, ANN201 - ASGI's interface
    """Answer any request."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
