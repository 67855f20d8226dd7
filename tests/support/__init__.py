"""What several tests share: toy trees and models, stand-ins for services, random cases."""
