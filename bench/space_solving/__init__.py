"""``nestmap bench spaces``: construction, counting and sampling beside other builders."""
