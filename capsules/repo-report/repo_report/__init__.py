"""Survey a folder and report on it in Markdown; `agent.py` is the way in.

In data-flow order: `wishes` -> `git`, `folder`, `listing` -> `content`, `languages`, `counting`
-> `markers`, `recent`, `links`, `oddities` -> `report`, `summary`.
"""
