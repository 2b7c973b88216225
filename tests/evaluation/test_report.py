"""The files of a report: JSON that programs read, one page that needs nothing else."""

import json
from html.parser import HTMLParser

import pytest
from PIL import Image

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.report import MAX_STRIPS, NextStep, write_reports


class Page(HTMLParser):
    """Collects tags and text, and checks that tags nest."""

    VOID = frozenset({"meta", "img", "link", "br"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._open = [], "", []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def _write(folder, *reports, **options):
    write_reports(reports, folder, **options)
    return json.loads((folder / "report.json").read_text()), Page((folder / "report.html").read_text(encoding="utf-8"))


def test_one_report_is_one_object(report, tmp_path):
    numbers, page = _write(tmp_path / "new", report())
    assert numbers["env"] == "line"
    assert numbers["success_rate"] == 1.0
    assert "1 of 1" in page.text


def test_several_reports_share_machine_and_versions(report, tmp_path):
    numbers, page = _write(tmp_path, report(), report(env="wall"), report(env="wall", controller="random", planner=""))
    assert [r["env"] for r in numbers["reports"]] == ["line", "wall", "wall"]
    assert numbers["machine"]["cpu"] == "Test CPU"
    headings = [attrs["id"] for attrs in page.all("h2")]
    assert headings == ["success", "task-1", "task-2", "next", "machine"]  # baselines get no section of their own
    assert "random" in page.text


def test_the_page_needs_nothing_from_elsewhere_and_reads_aloud(report, result, tmp_path):
    _, page = _write(tmp_path, report(result(), result(seed=1, distances=(0.3, 0.01, 0.2))))
    links = [
        a.get("src", "") or a.get("href", "") for t in ("img", "video", "script", "link", "a") for a in page.all(t)
    ]
    assert links
    assert not any(link.startswith(("http", "//")) for link in links)
    assert page.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    assert len(page.all("h1")) == 1
    assert all(img.get("alt") for img in page.all("img"))
    pictures = page.all("svg")
    assert pictures
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in pictures)
    assert "left it again" in page.text
    style = (tmp_path / "report.html").read_text()
    assert "prefers-color-scheme: dark" in style


def test_the_video_is_linked_with_its_poster(report, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "line-grpc.jpg")
    _, page = _write(tmp_path, report(video="line-grpc.mp4"))
    video = page.all("video")[0]
    assert video["src"] == "line-grpc.mp4"
    assert video["poster"].startswith("data:image/jpeg;base64,")
    assert video["aria-label"]
    assert {"href": "line-grpc.mp4"} in page.all("a")


def test_names_are_escaped(report, tmp_path):
    _write(tmp_path, report(env="<script>x", settings={"<i>": "&"}))
    assert "<script>" not in (tmp_path / "report.html").read_text()


def test_lost_episodes_are_shown_first_when_there_are_many(report, result, tmp_path):
    many = [result(seed=i) for i in range(MAX_STRIPS)] + [result(seed=999, distances=(0.3, 0.25, 0.2))]
    _, page = _write(tmp_path, report(*many))
    assert "999" in page.text
    assert "1 more solved episodes are in report.json" in page.text


def test_title_and_next_steps_are_the_callers(report, tmp_path):
    _, page = _write(tmp_path, report(), title="Demo", next_steps=[NextStep("mstar-plan serve", "starts a server")])
    assert "Demo" in page.text
    assert "mstar-plan serve" in page.text


def test_no_report_is_an_error(tmp_path):
    with pytest.raises(InvalidInputError, match="no evaluation to report"):
        write_reports([], tmp_path)
