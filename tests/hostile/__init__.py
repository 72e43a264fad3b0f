"""What attackers and faults did to nestmap once, kept so that they do not again."""
