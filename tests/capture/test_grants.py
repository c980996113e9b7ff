"""What SHOW GRANTS says, in the words of MariaDB and of MySQL."""

from __future__ import annotations

from headrace.capture.grants import Grants


def test_what_is_granted_on_one_database_is_not_granted_on_another_or_everywhere() -> None:
    grants = Grants(
        [
            "GRANT USAGE ON *.* TO `guest`@`%` IDENTIFIED BY PASSWORD '*SELECT ON'",
            "GRANT SELECT, INSERT ON `other`.* TO `guest`@`%`",
            "GRANT DELETE ON `shop`.`orders` TO `guest`@`%`",
        ]
    )
    assert grants.allow_on("SELECT", "other", "t")
    assert grants.allow_on("DELETE", "shop", "orders")
    for right, database, table in (
        ("SELECT", "shop", "t"), ("DELETE", "shop", "t"), ("DELETE", "other", "orders"), ("UPDATE", "other", "t"),
    ):  # fmt: skip
        assert not grants.allow_on(right, database, table)
    assert not grants.allow("SELECT")


def test_a_right_whose_name_begins_like_another_is_not_that_right() -> None:
    grants = Grants(["GRANT REPLICATION SLAVE ADMIN, BINLOG ADMIN ON *.* TO `guest`@`%`"])
    assert not grants.allow("REPLICATION SLAVE")
    assert not grants.allow("REPLICATION CLIENT")


def test_servers_have_different_names_for_one_right() -> None:
    grants = Grants(["GRANT RELOAD, REPLICATION REPLICA, BINLOG MONITOR ON *.* TO `guest`@`%` WITH GRANT OPTION"])
    assert all(grants.allow(right) for right in ("RELOAD", "REPLICATION SLAVE", "REPLICATION CLIENT"))


def test_all_privileges_are_every_right_where_they_are_granted() -> None:
    assert Grants(["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"]).allow("RELOAD")
    of_one = Grants(["GRANT ALL PRIVILEGES ON `shop`.* TO `guest`@`%`"])
    assert of_one.allow_on("SELECT", "shop", "t")
    assert not of_one.allow("RELOAD")


def test_rights_on_columns_roles_and_proxies_are_no_rights_on_tables() -> None:
    grants = Grants(
        [
            "GRANT SELECT (`id`, `name`), INSERT ON `shop`.`t` TO `guest`@`%`",
            "GRANT `SELECT`@`%` TO `guest`@`%`",
            "GRANT PROXY ON ``@`` TO `guest`@`%` WITH GRANT OPTION",
        ]
    )
    assert not grants.allow_on("SELECT", "shop", "t")
    assert grants.allow_on("INSERT", "shop", "t")


def test_the_name_of_a_database_is_a_pattern_except_with_a_table() -> None:
    grants = Grants(["GRANT SELECT ON `shop\\_%`.* TO `a`@`%`", "GRANT INSERT ON `shop_1`.`t` TO `a`@`%`"])
    assert grants.allow_on("SELECT", "shop_1", "t")
    assert not grants.allow_on("SELECT", "shopx1", "t")
    assert not grants.allow_on("INSERT", "shopx1", "t")
    assert Grants(["GRANT SELECT ON `sh_p`.* TO `a`@`%`"]).allow_on("SELECT", "shop", "t")
    assert Grants(["GRANT SELECT ON `a``b`.`c``d` TO `a`@`%`"]).allow_on("SELECT", "a`b", "c`d")
