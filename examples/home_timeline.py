"""Home timelines: what the people whom somebody follows have posted.

A tweet that is deleted goes from all timelines, and so do the tweets of somebody who is not followed any more.

Two tables are all there is to write to. Posting and following set a row; deleting and unfollowing are records with
the row's key, as JSON, and no value::

    tweets    {"id": 1}                                 {"id": 1, "author": "ada", "text": "...", "posted_at": "..."}
    follows   {"follower": "bob", "followee": "ada"}    {"follower": "bob", "followee": "ada"}

``headrace run examples/home_timeline.py``, and to see it ``headrace view get home.home_timeline``.
"""

import headrace as hr

app = hr.App("home")
app.table("tweets", "id long, author string, text string, posted_at timestamp", key="id")
app.table("follows", "follower string, followee string", key=["follower", "followee"])


@app.view(key=["follower", "id"])
def home_timeline(tweets, follows):
    """Each follower's tweets: one row for each tweet and each follower of its author."""
    return hr.join(tweets, follows, on={"author": "followee"})


@app.view(key="followee")
def followers(follows):
    """How many follow somebody."""
    return hr.aggregate(follows, by="followee", followers=hr.count())
