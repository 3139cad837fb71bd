"""PDF files for tests, written by hand: one page for each text; an empty text gives a page without any."""

from __future__ import annotations


def pdf(*texts: str) -> bytes:
    """A whole PDF."""
    pages = len(texts)
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(pages))
    parts.append(f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>".encode())
    font = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    for n, text in enumerate(texts):
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {4 + 2 * n} 0 R {font} >>"
        drawn = f"BT /F1 12 Tf 40 700 Td ({text}) Tj ET".encode() if text else b""
        parts += [page.encode(), b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn)]
    whole, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(parts) + 1)
    tail = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, len(whole))
    return whole + head + table + tail
