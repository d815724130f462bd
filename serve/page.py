"""The page for people at `/`: files of this package, which load nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# No inline script or style, nothing from another origin, no frame around it.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    # Small, and from the same machine: a new version must be seen at once.
    "cache-control": "no-cache",
}


def page_router() -> APIRouter:
    """`GET /` and the files that it needs, below /page/."""
    router = APIRouter(include_in_schema=False)
    for file in sorted(FOLDER.iterdir()):
        _add(router, "/" if file.name == INDEX else f"/page/{file.name}", file)
    return router


def _add(router: APIRouter, path: str, file: Path) -> None:
    content, kind = file.read_bytes(), TYPES[file.suffix]

    @router.get(path)
    async def answer() -> Response:
        return Response(content, headers={**HEADERS, "content-type": kind})
