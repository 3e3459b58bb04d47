"""What epsilon really is (audit) and what an adversary really learns (attack)."""
